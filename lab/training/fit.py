"""The training loop: one phase of one model, resumable, with a schedule that knows the time.

Knows a model, batches and a loss; nothing about where they come from.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from tqdm import tqdm

from lab.training.files import add_line, replacing
from lab.training.quantisation import adapt, quantise, restore
from lab.training.recipe import Phase
from pipeline.errors import UserError

LOSSES = "losses.jsonl"
_SAVE_EVERY = 180.0  # seconds
_LOG_EVERY = 20  # steps
_DAMAGED = "is damaged; delete it to start over"
_PAUSE = 30.0  # seconds; a step that took longer was suspended, which is not training time


Loss = Callable[[Any, Any], torch.Tensor]  # of a model and a batch
# Epoch number -> its batches, the same at each call. Positions of `segments` below 0 are padding.
Epoch = Callable[[int], Iterator[Any]]


@dataclass(slots=True)
class Progress:
    """How far a phase is. `batch` counts within the epoch, `seconds` over all runs."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def done(self, phase: Phase) -> float:
        """The part of `phase` that is over, 0 to 1."""
        return min(1.0, max(self.step / phase.steps, self.seconds / (60 * phase.minutes)))

    def rate(self, phase: Phase) -> float:
        """The learning rate of the next step."""
        first, last = phase.rates
        warm = min(1.0, (self.step + 1) / phase.warmup)
        return warm * (first + (last - first) * self.done(phase))


def fit(
    model: torch.nn.Module,
    epoch: Epoch,
    loss_of: Loss,
    phase: Phase,
    folder: Path,
    configuration: str,
) -> None:
    """Trains `model` in place to the end of `phase`, from its checkpoint in `folder` if any.

    What is trained with a rank is kept beside the checkpoint, as `PHASE.safetensors` in bfloat16,
    and where that is there already, nothing is trained.

    Args:
        configuration: all that shapes this run; a checkpoint of another one is refused.

    Raises:
        UserError: the checkpoint is damaged or of another configuration, or the disk is full.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    # bfloat16 is faster than float32 on any GPU, and on CPUs with AVX-512 BF16 or AMX.
    fast = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=fast or device.type == "cuda")
    path, adapter = folder / f"{phase.name}.checkpoint", folder / f"{phase.name}.safetensors"
    if phase.rank:
        adapt(model, phase.rank, phase.int4_group)
        if adapter.is_file():
            _read_adapter(model, adapter, configuration)
            restore(model)
            return
    elif phase.int4_group:
        quantise(model, phase.int4_group)
    state = _read(path, configuration)
    if state:
        model.load_state_dict(state["model"])
    model.to(device).train()
    optimisers = _optimisers(model, phase)
    for optimiser, kept in zip(optimisers, state["optimisers"] if state else (), strict=False):
        optimiser.load_state_dict(kept)
    progress = Progress(**state["progress"]) if state else Progress()

    def save() -> None:
        state = {
            "configuration": configuration,
            "model": model.state_dict(),
            "optimisers": [optimiser.state_dict() for optimiser in optimisers],
            "progress": asdict(progress),
        }
        with replacing(path) as temporary:
            torch.save(state, temporary)

    saved = last = time.monotonic()
    losses: list[float] = []
    bar = tqdm(total=100, desc=phase.name, bar_format="{l_bar}{bar}| {postfix}")
    while progress.done(phase) < 1:
        for index, batch in enumerate(epoch(progress.epoch)):
            if index < progress.batch:
                continue
            with autocast:
                loss = loss_of(model, batch.to(device))
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimiser in optimisers:
                for group in optimiser.param_groups:
                    group["lr"] = progress.rate(phase)
                optimiser.step()
                optimiser.zero_grad()

            now = time.monotonic()
            losses.append(loss.item())
            progress.batch = index + 1
            progress.step += 1
            progress.tokens += int((batch.segments >= 0).sum())
            progress.seconds += min(now - last, _PAUSE)
            last = now
            if progress.step % _LOG_EVERY == 0:
                mean, losses = sum(losses) / len(losses), []
                row = {"phase": phase.name, "step": progress.step, "tokens": progress.tokens}
                add_line(folder / LOSSES, row | {"seconds": round(progress.seconds), "loss": mean})
                speed = progress.tokens / progress.seconds
                bar.n = round(100 * progress.done(phase), 1)
                bar.set_postfix_str(f"epoch {progress.epoch}, {mean:.3f} nats, {speed:.0f} tok/s")
            if now - saved > _SAVE_EVERY:
                save()
                saved = now
            if progress.done(phase) >= 1:
                break
        else:
            progress.epoch += 1
            progress.batch = 0
    bar.close()
    save()
    if phase.rank:
        trained = {
            name: each.bfloat16() for name, each in model.named_parameters() if each.requires_grad
        }
        with replacing(adapter) as temporary:
            save_file(trained, temporary, {"configuration": configuration})
        _read_adapter(model, adapter, configuration)
    restore(model)


def _optimisers(model: torch.nn.Module, phase: Phase) -> list[torch.optim.Optimizer]:
    """AdamW; or Muon (Jordan et al. 2024) for the matrices of layers, and AdamW for the others."""
    muon, matrices, vectors = [], [], []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if parameter.ndim < 2:
            vectors.append(parameter)
        elif phase.muon and ".layers." in name and parameter.ndim == 2:
            muon.append(parameter)
        else:
            matrices.append(parameter)
    groups = [
        {"params": matrices, "weight_decay": phase.decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    rate = phase.rates[0]
    found: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), fused=True)
    ]
    if muon:
        decay = phase.decay
        found.append(
            torch.optim.Muon(muon, lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
        )
    return found


def _read_adapter(model: torch.nn.Module, path: Path, configuration: str) -> None:
    try:
        with safe_open(path, "pt") as file:  # type: ignore[no-untyped-call]
            made_with = file.metadata()["configuration"]
            trained = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, TypeError):
        raise UserError("checkpoint", str(path), _DAMAGED) from None
    _require_same(made_with, configuration, path)
    model.load_state_dict(trained, strict=False)


def _require_same(made_with: str, configuration: str, path: Path) -> None:
    if made_with != configuration:
        remedy = "was made with another configuration; delete it, or name another --work"
        raise UserError("checkpoint", str(path), remedy)


def _read(path: Path, configuration: str) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        made_with = state["configuration"]
    except Exception:  # a damaged archive or pickle raises nearly anything
        raise UserError("checkpoint", str(path), _DAMAGED) from None
    _require_same(made_with, configuration, path)
    return state
