"""The training loop: one phase of one model, resumable.

Knows a model, batches and a loss; nothing about where they come from.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from pipeline.errors import UserError
from training.files import replacing
from training.packing import Batch
from training.smol.quantisation import Int4Training
from training.smol.recipe import Phase

LOSSES = "losses.csv"
_SAVE_EVERY = 420.0  # seconds
_LOG_EVERY = 10  # steps

Loss = Callable[[torch.nn.Module, Batch], torch.Tensor]
Epoch = Callable[[int], Iterator[Batch]]  # epoch number -> its batches, the same at each call


@dataclass(slots=True)
class Progress:
    """How far a phase is. `batch` counts within the epoch, `seconds` over all runs."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0


def best_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def computes_in_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 is faster there than float32: any GPU, and CPUs with AVX-512 BF16 or AMX."""
    if device.type == "cuda":
        return True
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def fit(
    model: torch.nn.Module,
    epoch: Epoch,
    loss_of: Loss,
    phase: Phase,
    *,
    decay: float,
    folder: Path,
    configuration: str,
) -> None:
    """Trains `model` in place to the end of `phase`, from its checkpoint in `folder` if any.

    Args:
        decay: AdamW's, on matrices.
        configuration: all that shapes this run; a checkpoint of another one is refused.

    Raises:
        UserError: the checkpoint is damaged or of another configuration, or the disk is full.
    """
    device = best_device()
    model.to(device).train()
    steps = _steps(epoch, phase)
    trained = Int4Training(model, phase.int4_group)
    groups = [
        {"params": [p for p in trained.parameters if p.ndim > 1], "weight_decay": decay},
        {"params": [p for p in trained.parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=phase.rate, betas=(0.9, 0.95), fused=True)
    path = _checkpoint(folder, phase)
    progress = _resume(path, trained, optimiser, configuration)

    def save() -> None:
        state = {
            "configuration": configuration,
            "parameters": [parameter.detach() for parameter in trained.parameters],
            "optimiser": optimiser.state_dict(),
            "progress": asdict(progress),
        }
        with replacing(path) as temporary:
            torch.save(state, temporary)

    saved = last = time.monotonic()
    losses: list[float] = []
    with tqdm(total=steps, initial=progress.step, desc=phase.name) as bar:
        while progress.step < steps:
            for index, batch in enumerate(epoch(progress.epoch)):
                if index < progress.batch:
                    continue
                for group in optimiser.param_groups:
                    group["lr"] = rate(phase, progress.step, steps)
                trained.quantise()
                with torch.autocast(
                    device.type, torch.bfloat16, enabled=computes_in_bfloat16(device)
                ):
                    loss = loss_of(model, batch.to(device))
                loss.backward()  # type: ignore[no-untyped-call]
                trained.pass_gradients()
                torch.nn.utils.clip_grad_norm_(trained.parameters, 1.0)
                optimiser.step()
                optimiser.zero_grad()

                now = time.monotonic()
                losses.append(loss.item())
                progress.batch = index + 1
                progress.step += 1
                progress.tokens += int((batch.segments >= 0).sum())
                progress.seconds += now - last
                last = now
                bar.update()
                if progress.step % _LOG_EVERY == 0:
                    mean, losses = sum(losses) / len(losses), []
                    _log(folder / LOSSES, phase, progress, mean)
                    bar.set_postfix_str(f"{mean:.3f} nats")
                if now - saved > _SAVE_EVERY:
                    save()
                    saved = now
                if progress.step == steps:
                    break
            else:
                progress.epoch += 1
                progress.batch = 0
    trained.restore()
    save()


def rate(phase: Phase, step: int, steps: int) -> float:
    """The learning rate of a step."""
    return phase.rate * min(1.0, (step + 1) / phase.warmup) * (1 - step / steps)


def _steps(epoch: Epoch, phase: Phase) -> int:
    """How many optimiser steps the phase takes: as many batches as its first epochs have."""
    whole = math.floor(phase.epochs)
    counts = [sum(1 for _ in epoch(number)) for number in range(math.ceil(phase.epochs))]
    part = counts[whole] * (phase.epochs - whole) if len(counts) > whole else 0
    return sum(counts[:whole]) + round(part)


def _checkpoint(folder: Path, phase: Phase) -> Path:
    return folder / f"{phase.name}.checkpoint"


def _resume(
    path: Path, trained: Int4Training, optimiser: torch.optim.Optimizer, configuration: str
) -> Progress:
    if not path.exists():
        return Progress()
    state = _read(path)
    if state["configuration"] != configuration:
        remedy = "was made with another configuration; delete it, or name another --work"
        raise UserError("checkpoint", str(path), remedy)
    with torch.no_grad():
        for parameter, saved in zip(trained.parameters, state["parameters"], strict=True):
            parameter.copy_(saved)
    optimiser.load_state_dict(state["optimiser"])
    return Progress(**state["progress"])


def _read(path: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        state["configuration"], state["parameters"], state["progress"]
    except Exception:  # a damaged archive or pickle raises nearly anything
        raise UserError("checkpoint", str(path), "is damaged; delete it to start over") from None
    return state


def _log(path: Path, phase: Phase, progress: Progress, loss: float) -> None:
    """One more row of the loss curve; nats."""
    fresh = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as lines:
        table = csv.writer(lines)
        if fresh:
            table.writerow(("phase", "step", "tokens", "seconds", "loss"))
        seconds = round(progress.seconds)
        table.writerow((phase.name, progress.step, progress.tokens, seconds, f"{loss:.4f}"))
