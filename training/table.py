"""A target's answers with its probabilities at every token: what a draft is distilled from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from pipeline.errors import UserError
from training import packing
from training.files import replacing

TABLE = "answers.pt"
_ROWS = 8  # of a packed batch

Pair = tuple[Sequence[int], Sequence[int]]  # the ids of a prompt and of the answer to it
Logits = Callable[[Any, packing.Batch], tuple[torch.Tensor, torch.Tensor]]  # where targets are


@dataclass(frozen=True, slots=True)
class Table:
    """Answers and, for each of their tokens, the target's `top` most likely tokens.

    Attributes:
        examples: their targets are rows of `tokens` and `probs`.
        tokens: int32[rows, top].
        probs: float16[rows, top], of the whole vocabulary: a row sums to at most one.
    """

    examples: list[packing.Example]
    tokens: torch.Tensor
    probs: torch.Tensor


def make_table(
    model: Any,
    logits_of: Logits,
    pairs: Sequence[Pair],
    prefix: Sequence[int],
    pack: int,
    top: int,
) -> Table:
    """The probabilities of `model`, by the logits that `logits_of` computes on packed rows."""
    examples: list[packing.Example] = []
    count = 0
    for prompt, answer in pairs:
        plain = packing.example(len(prefix), prompt, answer)
        silent = (packing.IGNORED,) * (len(plain.targets) - len(answer))
        rows = range(count, count := count + len(answer))
        examples.append(packing.Example(plain.tokens, (*silent, *rows)))
    tokens = torch.zeros(count, top, dtype=torch.int32)
    probs = torch.zeros(count, top, dtype=torch.float16)
    for batch in tqdm(packing.pack(examples, prefix, pack, _ROWS, seed=0), desc="probabilities"):
        with torch.inference_mode():
            logits, rows_of = logits_of(model, batch.to(model.device))
            best = logits.float().softmax(-1).topk(top)
        tokens[rows_of.cpu()] = best.indices.int().cpu()
        probs[rows_of.cpu()] = best.values.half().cpu()
    return Table(examples, tokens, probs)


def save_table(table: Table, work: Path, configuration: str) -> None:
    """Writes the table to the work folder, with its configuration."""
    state = {
        "configuration": configuration,
        "examples": [(example.tokens, example.targets) for example in table.examples],
        "tokens": table.tokens,
        "probs": table.probs,
    }
    with replacing(work / TABLE) as path:
        torch.save(state, path)


def load_table(work: Path, configuration: str, stage: str) -> Table:
    """Reads the table from the work folder.

    Raises:
        UserError: it is missing, or has another configuration; `stage` is the module to run.
    """
    path = work / TABLE
    if not path.exists():
        raise UserError("answers", str(path), f"are not there; run python -m {stage} first")
    state = torch.load(path, map_location="cpu", weights_only=True)
    if state["configuration"] != configuration:
        remedy = f"were made with another configuration; run python -m {stage} again"
        raise UserError("answers", str(path), remedy)
    examples = [packing.Example(tuple(t), tuple(r)) for t, r in state["examples"]]
    return Table(examples, state["tokens"], state["probs"])
