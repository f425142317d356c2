"""What the block drafter learns from: the target's hidden states and probabilities on its answers.

`python -m training.features` reads WORK/answers.jsonl with the target in INT4, as it is shipped.
The rows are packed once and kept on disk, so that training needs no target; an interrupted run
continues.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from pipeline.errors import UserError
from training import packing, target
from training.answers import read_answers, teacher
from training.command import Command, run
from training.packing import IGNORED, Batch
from training.recipe import Recipe

FEATURES = "features"
_ROWS = 8  # of a packed batch
_EPSILON = 1e-5
_STATE = "state.json"


@dataclasses.dataclass(frozen=True, slots=True)
class Features:
    """Packed rows of answers, and what the target computed on them. Arrays are mapped from disk.

    Attributes:
        tokens, positions, segments: int64[rows, pack], as in `packing.Batch`.
        wanted: bool[rows, pack], where the target predicts a token of an answer.
        hidden: float16[rows, pack, layers * width], the streams after some layers, each of unit
            root mean square.
        top_tokens, top_probs: int32 and float16[rows, pack, top], its most likely tokens.
    """

    tokens: NDArray[np.int64]
    positions: NDArray[np.int64]
    segments: NDArray[np.int64]
    wanted: NDArray[np.bool_]
    hidden: NDArray[np.float16]
    top_tokens: NDArray[np.int32]
    top_probs: NDArray[np.float16]

    def likeliest(self) -> NDArray[np.int32]:
        """The target's first choice wherever it wrote."""
        return self.top_tokens[:, :, 0][self.wanted]

    def shuffled(self, rows: int, seed: tuple[int, ...]) -> Iterator[NDArray[np.int64]]:
        """The numbers of all rows once, so many at a time."""
        order = np.random.default_rng(seed).permutation(len(self.tokens))
        for at in range(0, len(order), rows):
            yield np.sort(order[at : at + rows])


def main(command: Command) -> None:
    """Writes WORK/features."""
    recipe, source = command.recipe, command.work / target.TARGET
    answers = read_answers(command.work)
    prefix = packing.shared_prefix(target.load_tokenizer(source))
    examples = [packing.example(len(prefix), prompt, answer) for prompt, answer in answers]
    batches = list(packing.pack(examples, prefix, recipe.block_phase.pack, _ROWS, recipe.seed))
    features, done, folder = _open(command.work, recipe, sum(len(b.tokens) for b in batches), "r+")
    model = teacher(source, recipe)
    streams = _record_streams(model, recipe.block.hidden_layers)
    at = 0
    for batch in tqdm(batches, desc="features"):
        rows = slice(at, at := at + len(batch.tokens))
        if at <= done:
            continue
        _fill(features, rows, batch, model, streams, recipe.answers.top)
        (folder / _STATE).write_text(json.dumps([_fingerprint(recipe), len(features.tokens), at]))
    print(f"{len(examples)} answers, {int(features.wanted.sum())} tokens of them, in {folder}")


def load_features(work: Path, recipe: Recipe) -> Features:
    """Raises UserError if the stage has not run to its end with this recipe."""
    features, done, folder = _open(work, recipe, 0, "r")
    if done < len(features.tokens):
        remedy = "are not complete; run python -m training.features again"
        raise UserError("features", str(folder), remedy)
    return features


@torch.inference_mode()
def _fill(
    features: Features, rows: slice, batch: Batch, model: Any, streams: list[Any], top: int
) -> None:
    on_device = batch.to(model.device)
    logits, _ = target.packed_logits(model, on_device)
    best = logits.float().softmax(-1).topk(top)
    wanted = (batch.targets != IGNORED).numpy()
    features.tokens[rows], features.positions[rows] = batch.tokens, batch.positions
    features.segments[rows], features.wanted[rows] = batch.segments, wanted
    hidden = torch.cat([unit(stream.float()) for stream in streams], -1)
    features.hidden[rows] = hidden.half().cpu().numpy()
    features.top_tokens[rows][wanted] = best.indices.int().cpu().numpy()
    features.top_probs[rows][wanted] = best.values.half().cpu().numpy()


def unit(stream: torch.Tensor) -> torch.Tensor:
    """Each vector of the last axis, scaled to a root mean square of 1."""
    return stream * torch.rsqrt(stream.square().mean(-1, keepdim=True) + _EPSILON)


def _record_streams(model: Any, layers: tuple[int, ...]) -> list[Any]:
    """A list that each forward pass fills with the residual streams after these layers."""
    streams: list[Any] = [None] * len(layers)
    for place, layer in enumerate(layers):

        def keep(module: Any, inputs: Any, output: Any, place: int = place) -> None:
            streams[place] = output[0] if isinstance(output, tuple) else output

        model.model.layers[layer].register_forward_hook(keep)
    return streams


def _fingerprint(recipe: Recipe) -> str:
    parts = (recipe.block.hidden_layers, recipe.block_phase.pack)
    return target.fingerprint(recipe, "repetition", "instructions", "answers") + json.dumps(parts)


def _open(
    work: Path, recipe: Recipe, rows: int, mode: Literal["r", "r+"]
) -> tuple[Features, int, Path]:
    """The arrays, how many rows are filled, and their folder; makes them if `mode` allows it."""
    folder, made_with, done = work / FEATURES, "", 0
    if (folder / _STATE).is_file():
        made_with, kept, done = json.loads((folder / _STATE).read_text())
        rows = rows or kept
    fresh = made_with != _fingerprint(recipe)
    if fresh and mode == "r":
        remedy = "are not there, or of another recipe; run python -m training.features first"
        raise UserError("features", str(folder), remedy)
    folder.mkdir(exist_ok=True)
    pack, top = recipe.block_phase.pack, recipe.answers.top
    width = json.loads((work / target.TARGET / "config.json").read_text())["hidden_size"]
    shapes: dict[str, tuple[type, tuple[int, ...]]] = {
        "tokens": (np.int64, ()),
        "positions": (np.int64, ()),
        "segments": (np.int64, ()),
        "wanted": (np.bool_, ()),
        "hidden": (np.float16, (len(recipe.block.hidden_layers) * width,)),
        "top_tokens": (np.int32, (top,)),
        "top_probs": (np.float16, (top,)),
    }
    arrays: dict[str, Any] = {
        name: np.memmap(
            folder / f"{name}.bin", kind, "w+" if fresh else mode, shape=(rows, pack, *tail)
        )
        for name, (kind, tail) in shapes.items()
    }
    return Features(**arrays), 0 if fresh else done, folder


if __name__ == "__main__":
    run(main, __doc__)
