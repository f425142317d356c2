"""The block draft: one forward pass proposes a whole block. `python -m training.block`

Two layers over the draft's vocabulary, conditioned on the target's hidden states. The row of a
token reads its embedding and the streams that the token was predicted from (EAGLE, arXiv
2401.15077), and predicts the token after it. The rows of the slots 1, 2, … read the same values
with an embedding of the slot, attend to what the token's row attends to and to the slots before,
and predict the tokens after that, all in one pass (PARD, arXiv 2504.18583; DFlash). A low-rank
bigram term, added to a slot's logits once the token before it is drawn, makes the tokens of a
block agree with each other (DSpark's Markov head).

The loss is the LK loss of `training.draft`, less for later slots: they count only if all tokens
before them are accepted.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from training import target
from training.block_ir import WEIGHTS
from training.command import Command, run
from training.draft import TARGET_IDS, make_draft, vocabulary
from training.features import Features, load_features
from training.files import replacing_folder
from training.fit import fit
from training.losses import acceptance_loss
from training.packing import PREFIX
from training.recipe import Block, Recipe

BLOCK = "block"


class BlockDraft(torch.nn.Module):
    """See the module.

    Args:
        layers: a Llama model, whose embedding is also its head.
        hidden_width: of the target's streams, side by side.
        block: its sizes.
    """

    def __init__(self, layers: Any, hidden_width: int, block: Block) -> None:
        super().__init__()
        self.causal_lm = layers
        vocabulary, width = layers.model.embed_tokens.weight.shape
        self.fuse = torch.nn.Linear(hidden_width, width, bias=False)
        self.slots = torch.nn.Embedding(block.length, width)
        self.before = torch.nn.Embedding(vocabulary, block.rank)
        self.after = torch.nn.Linear(block.rank, vocabulary, bias=False)
        torch.nn.init.normal_(self.fuse.weight, std=0.002)
        torch.nn.init.normal_(self.slots.weight, std=0.02)
        torch.nn.init.normal_(self.before.weight, std=0.05)
        torch.nn.init.zeros_(self.after.weight)
        with torch.no_grad():
            self.slots.weight[0] = 0

    def rows(self, batch: BlockBatch) -> torch.Tensor:
        """What each row of the batch ends as, float[rows, length, width]."""
        embedded = self.causal_lm.model.embed_tokens(batch.tokens)
        embedded = embedded + self.fuse(batch.hidden) + self.slots(batch.slots)
        streams: torch.Tensor = self.causal_lm.model(
            inputs_embeds=embedded,
            attention_mask=batch.mask,
            position_ids=batch.positions,
            use_cache=False,
        ).last_hidden_state
        return streams

    def logits(self, rows: torch.Tensor, slots: torch.Tensor, previous: torch.Tensor) -> Any:
        """float[n, vocabulary] of n rows, of slots int[n], with the tokens before, int[n]."""
        bigram = self.after(self.before(previous)) * (slots > 0)[:, None]
        return self.causal_lm.lm_head(rows) + bigram


@dataclasses.dataclass(frozen=True, slots=True)
class BlockBatch:
    """Packed rows, and after them the slots of some of their tokens.

    Attributes:
        tokens: int64[rows, length], in the draft's vocabulary.
        hidden: float[rows, length, hidden width], that each token was predicted from.
        slots: int64[rows, length], 0 for a token's own row.
        positions: int64[rows, length].
        mask: bool[rows, 1, length, length].
        wanted: int64[n], places in the flattened rows that have a loss.
        previous: int64[n], the token before the one that is predicted there.
        top_tokens, top_probs: [n, top], the target's probabilities of it, in the draft's rows.
        segments: int64[rows, length].
    """

    tokens: torch.Tensor
    hidden: torch.Tensor
    slots: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor
    wanted: torch.Tensor
    previous: torch.Tensor
    top_tokens: torch.Tensor
    top_probs: torch.Tensor
    segments: torch.Tensor

    def to(self, device: torch.device) -> BlockBatch:
        names = (field.name for field in dataclasses.fields(self))
        return BlockBatch(**{name: getattr(self, name).to(device) for name in names})


def make_batch(
    features: Features,
    rows: NDArray[np.int64],
    row_of: NDArray[np.int64],
    block: Block,
    rng: np.random.Generator,
) -> BlockBatch:
    """Rows of the features, with the slots of `block.anchors` tokens in each, drawn at random."""
    tokens, segments = features.tokens[rows], features.segments[rows]
    positions, wanted = features.positions[rows], features.wanted[rows]
    count, pack = tokens.shape
    starts = (segments == PREFIX).sum(1)  # the first token of every example follows the prefix
    places = np.arange(pack)
    first = np.ones_like(segments, bool)
    first[:, 1:] = segments[:, 1:] != segments[:, :-1]
    before = np.where(first, starts[:, None] - 1, places - 1)
    before[:, 0] = 0

    # Slots of one token stand together: anchor 0's slots 1 to length - 1, anchor 1's, and so on.
    drawn = rng.random(tokens.shape) * wanted
    anchors = np.argsort(-drawn, axis=1)[:, : block.anchors]
    ahead = np.arange(1, block.length)
    anchor = np.repeat(anchors, len(ahead), axis=1)
    slot = np.tile(ahead, (count, block.anchors))
    each = np.arange(count)[:, None]
    predicts = np.minimum(anchor + slot, pack - 1)
    valid = (
        wanted[each, anchor]
        & wanted[each, predicts]
        & (segments[each, predicts] == segments[each, anchor])
        & (anchor + slot < pack)
    )

    source = np.concatenate([np.tile(places, (count, 1)), anchor], 1)  # a row's token
    slots = np.concatenate([np.zeros_like(tokens), slot], 1)
    predicts = np.concatenate([np.tile(places, (count, 1)), predicts], 1)
    losses = np.concatenate([wanted, valid], 1)
    own = segments[each, source]
    hidden = features.hidden[rows][each, before[each, source]]

    seen = (own[:, None, :pack] == own[:, :, None]) | (own[:, None, :pack] == PREFIX)
    seen &= places[None, None, :] <= source[:, :, None]
    group = np.repeat(np.arange(block.anchors), len(ahead))
    together = (group[:, None] == group[None, :]) & (slot[0][None, :] <= slot[0][:, None])
    below = np.zeros((count, source.shape[1], len(group)), bool)
    below[:, pack:] = together
    mask = np.concatenate([seen, below], 2)

    at = np.nonzero(losses)
    there = predicts[at]
    where = rows[at[0]], there
    return BlockBatch(
        tokens=torch.from_numpy(row_of[tokens[each, source]]),
        hidden=torch.from_numpy(hidden.astype(np.float32)),
        slots=torch.from_numpy(slots),
        positions=torch.from_numpy(positions[each, source] + slots),
        mask=torch.from_numpy(mask[:, None]),
        wanted=torch.from_numpy(at[0] * source.shape[1] + at[1]),
        previous=torch.from_numpy(row_of[tokens[at[0], there]]),
        top_tokens=torch.from_numpy(row_of[features.top_tokens[where]]),
        top_probs=torch.from_numpy(features.top_probs[where].astype(np.float32)),
        segments=torch.from_numpy(own),
    )


def block_loss(block: Block) -> Any:
    """The LK loss, in nats, of a `BlockDraft` on a `BlockBatch`."""

    def loss(model: BlockDraft, batch: BlockBatch) -> torch.Tensor:
        slots = batch.slots.flatten()[batch.wanted]
        rows = model.rows(batch).flatten(0, 1)[batch.wanted]
        logits = model.logits(rows, slots, batch.previous)
        each = acceptance_loss(logits, batch.top_tokens, batch.top_probs)
        weights = block.decay**slots
        return (each * weights).sum() / weights.sum()

    return loss


def main(command: Command) -> None:
    """Distils WORK/block."""
    recipe, source = command.recipe, command.work / target.TARGET
    features, tokenizer = load_features(command.work, recipe), target.load_tokenizer(source)
    ids, row_of = vocabulary(features, tokenizer, recipe)
    layers = make_draft(target.load_model(source), recipe.block.layers, ids)
    model = BlockDraft(layers, features.hidden.shape[-1], recipe.block)
    train(model, features, row_of, recipe, command)
    save_block(model, ids, source, command.work / BLOCK, recipe.block)


def save_block(model: BlockDraft, ids: list[int], like: Path, out: Path, block: Block) -> None:
    """A checkpoint of the layers, with what is added to them beside.

    Args:
        ids: the target's token of each row.
        like: a folder with the tokenizer.
    """
    config = model.causal_lm.config
    config.target_ids, config.block = TARGET_IDS, block.length
    config.hidden_layers = block.hidden_layers
    kept = {name: weight for name, weight in model.state_dict().items() if "causal" not in name}
    with replacing_folder(out) as folder:
        model.causal_lm.save_pretrained(folder)
        torch.save(kept, folder / WEIGHTS)
        (folder / TARGET_IDS).write_text(json.dumps(ids))
        (folder / "tokenizer.json").write_bytes((like / "tokenizer.json").read_bytes())


def train(
    model: BlockDraft,
    features: Features,
    row_of: NDArray[np.int64],
    recipe: Recipe,
    command: Command,
) -> None:
    phase = recipe.block_phase

    def epoch(number: int) -> Iterator[BlockBatch]:
        rng = np.random.default_rng((recipe.seed, number, 1))
        for rows in features.shuffled(phase.rows, (recipe.seed, number)):
            yield make_batch(features, rows, row_of, recipe.block, rng)

    fit(
        model,
        epoch,
        block_loss(recipe.block),
        phase,
        decay=recipe.weight_decay,
        folder=command.work,
        configuration=target.fingerprint(
            recipe, "repetition", "instructions", "answers", "block", "block_phase"
        ),
    )


if __name__ == "__main__":
    run(main, __doc__)
