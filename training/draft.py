"""The draft: some of the target's layers, distilled. `python -m training.draft`

It knows the tokens that the answers use most; any other token of a text is read as one unknown
token, and is never proposed.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.text.prompt import ADDED_TOKENS
from training import target
from training.command import Command, run
from training.features import Features, load_features
from training.fit import fit
from training.losses import UNKNOWN, acceptance_loss
from training.packing import IGNORED, Batch
from training.recipe import Recipe

DRAFT, TARGET_IDS = "draft", "target_ids.json"


@dataclasses.dataclass(frozen=True, slots=True)
class DraftBatch:
    """Packed rows in the draft's tokens, with the target's probabilities where it wrote.

    Attributes:
        packed: its targets are rows of the other two.
        top_tokens, top_probs: [n, top], in the draft's tokens.
    """

    packed: Batch
    top_tokens: torch.Tensor
    top_probs: torch.Tensor

    @property
    def segments(self) -> torch.Tensor:
        return self.packed.segments

    def to(self, device: torch.device) -> DraftBatch:
        return DraftBatch(
            self.packed.to(device), self.top_tokens.to(device), self.top_probs.to(device)
        )


def main(command: Command) -> None:
    """Distils WORK/draft, a checkpoint of transformers, with the map of its rows beside it."""
    recipe, source = command.recipe, command.work / target.TARGET
    features = load_features(command.work, recipe)
    ids, row_of = vocabulary(features, target.load_tokenizer(source), recipe)
    model = make_draft(target.load_model(source), recipe.draft.layers, ids)
    phase = recipe.draft_phase

    def epoch(number: int) -> Iterator[DraftBatch]:
        for rows in features.shuffled(phase.rows, (recipe.seed, number)):
            yield _batch(features, rows, row_of)

    fit(
        model,
        epoch,
        _loss,
        phase,
        decay=recipe.weight_decay,
        folder=command.work,
        configuration=target.fingerprint(
            recipe, "repetition", "instructions", "answers", "draft", "draft_phase"
        ),
    )
    model.config.target_ids = TARGET_IDS
    out = command.work / DRAFT
    target.save_model(model, source, out)
    (out / TARGET_IDS).write_text(json.dumps(ids))
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters in {out}")


def vocabulary(
    features: Features, tokenizer: Any, recipe: Recipe
) -> tuple[list[int], NDArray[np.int64]]:
    """The target's ids of a draft's tokens, those that answers use most, ascending; and the draft's
    row of each of the target's ids.
    """
    counts = np.bincount(features.likeliest(), minlength=tokenizer.get_vocab_size())
    counts[[UNKNOWN, *(tokenizer.token_to_id(text) for text in ADDED_TOKENS)]] = len(counts) << 40
    ids = sorted(np.argsort(-counts, kind="stable")[: recipe.draft.vocabulary].tolist())
    row_of = np.full(len(counts), UNKNOWN)
    row_of[ids] = np.arange(len(ids))
    return ids, row_of


def _batch(features: Features, rows: NDArray[np.int64], row_of: NDArray[np.int64]) -> DraftBatch:
    wanted = features.wanted[rows]
    targets = np.full(wanted.shape, IGNORED)
    targets[wanted] = np.arange(wanted.sum())
    columns = (row_of[features.tokens[rows]], targets, features.positions[rows])
    packed = Batch(*map(torch.from_numpy, (*columns, features.segments[rows])))
    return DraftBatch(
        packed,
        torch.from_numpy(row_of[features.top_tokens[rows][wanted]]),
        torch.from_numpy(features.top_probs[rows][wanted]),
    )


def _loss(model: Any, batch: DraftBatch) -> torch.Tensor:
    logits, _ = target.packed_logits(model, batch.packed)  # in the order of the rows, as the tops
    return acceptance_loss(logits, batch.top_tokens, batch.top_probs).mean()


def make_draft(teacher: Any, layers: tuple[int, ...], ids: list[int]) -> Any:
    """A model of some of the teacher's layers and rows, with its weights."""
    config = copy.deepcopy(teacher.config)
    config.num_hidden_layers, config.vocab_size = len(layers), len(ids)
    draft = type(teacher)(config)
    rows = teacher.model.embed_tokens.weight[ids].detach()
    draft.model.embed_tokens.weight.data.copy_(rows)
    draft.model.norm.load_state_dict(teacher.model.norm.state_dict())
    for mine, its in zip(draft.model.layers, layers, strict=True):
        mine.load_state_dict(teacher.model.layers[its].state_dict())
    return draft


if __name__ == "__main__":
    run(main, __doc__)
