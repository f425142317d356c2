"""Stage `block`: the block draft, of which one forward pass proposes a whole block.

The draft model's layers, trained further on the target's hidden states. The row of a
token reads its embedding and the streams that the token was predicted from (EAGLE, arXiv
2401.15077), and predicts the token after it. The rows of the slots 1, 2, … read the same values
with an embedding of the slot, attend to what the token's row attends to and to the slots before,
and predict the tokens after that, all in one pass (PARD, arXiv 2504.18583; DFlash). A low-rank
bigram term, added to a slot's logits once the token before it is drawn, makes the tokens of a
block agree with each other (DSpark's Markov head).

The loss is the LK loss of `lab.training.draft`, weighted by what a slot contributes to the tokens
that are accepted (D-PACE, arXiv 2605.18810): it counts only if all tokens before it are accepted,
and then those after it count too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lab.training import packing, target
from lab.training.block_ir import WEIGHTS
from lab.training.command import Command
from lab.training.draft import DRAFT, Rows, acceptance_loss, read_rows, save_rows
from lab.training.features import FEATURES, Features
from lab.training.files import replacing_folder
from lab.training.fit import fit
from lab.training.packing import IGNORED, PREFIX, Batch
from lab.training.recipe import Block, spread
from pipeline.text.tokenizer import Tokenizer

BLOCK = "block"
_SMOOTHING = 0.5  # of chances, so that later slots are trained from the beginning


class BlockDraft(torch.nn.Module):
    """See the module.

    Args:
        layers: a causal language model of transformers: the draft model.
        hidden_width: of the target's streams, side by side.
        block: its sizes.
    """

    def __init__(self, layers: Any, hidden_width: int, block: Block) -> None:
        super().__init__()
        self.causal_lm = layers
        vocabulary, width = layers.get_input_embeddings().weight.shape
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
        embedded = self.causal_lm.get_input_embeddings()(batch.tokens)
        embedded = embedded + self.fuse(batch.hidden) + self.slots(batch.slots)
        streams: torch.Tensor = self.causal_lm.base_model(
            inputs_embeds=embedded,
            attention_mask=batch.mask,
            position_ids=batch.positions,
            use_cache=False,
        ).last_hidden_state
        return streams

    def logits(self, rows: torch.Tensor, slots: torch.Tensor, previous: torch.Tensor) -> Any:
        """float[n, vocabulary] of n rows, of slots int[n], with the tokens before, int[n]."""
        bigram = self.after(self.before(previous)) * (slots > 0)[:, None]
        return self.causal_lm.get_output_embeddings()(rows) + bigram


@dataclasses.dataclass(frozen=True, slots=True)
class BlockBatch(packing.Tensors):
    """Packed rows, and after them the slots of some of their tokens."""

    tokens: torch.Tensor  # int64[rows, length], in the draft's vocabulary
    hidden: torch.Tensor  # float[rows, length, hidden width], that each token was predicted from
    slots: torch.Tensor  # int64[rows, length], 0 for a token's own row
    positions: torch.Tensor  # int64[rows, length]
    mask: torch.Tensor  # bool[rows, 1, length, length]
    wanted: torch.Tensor  # int64[n], places in the flattened rows that have a loss
    previous: torch.Tensor  # int64[n], the token before the one that is predicted there
    top_tokens: torch.Tensor  # int64[n, top], the target's likeliest there, as the draft's rows
    top_probs: torch.Tensor  # float[n, top], the target's probabilities of these
    segments: torch.Tensor  # int64[rows, length]
    anchors: torch.Tensor  # int64[rows, anchors], the places whose slots stand after the row


def make_batch(
    features: Features, packed: Batch, rows: Rows, block: Block, rng: np.random.Generator
) -> BlockBatch:
    """Packed rows, with the slots of `block.anchors` tokens in each, drawn at random.

    Args:
        packed: rows of the features in place of tokens, without the first of every text, which was
            predicted from nothing.
    """
    source, segments = packed.tokens.numpy(), packed.segments.numpy()
    positions, wanted = packed.positions.numpy(), packed.targets.numpy() != IGNORED
    count, pack = source.shape
    places = np.arange(pack)

    # Slots of one token stand together: anchor 0's slots 1 to length - 1, anchor 1's, and so on.
    drawn = rng.random(source.shape) * wanted
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

    row = np.concatenate([np.tile(places, (count, 1)), anchor], 1)  # a place's token
    slots = np.concatenate([np.zeros_like(source), slot], 1)
    predicts = np.concatenate([np.tile(places, (count, 1)), predicts], 1)
    losses = np.concatenate([wanted, valid], 1)
    own, text = segments[each, row], source[each, row]
    before = np.maximum(text - 1, 0)  # padding stands for the very first token

    seen = (own[:, None, :pack] == own[:, :, None]) | (own[:, None, :pack] == PREFIX)
    seen &= places[None, None, :] <= row[:, :, None]
    group = np.repeat(np.arange(block.anchors), len(ahead))
    together = (group[:, None] == group[None, :]) & (slot[0][None, :] <= slot[0][:, None])
    below = np.zeros((count, row.shape[1], len(group)), bool)
    below[:, pack:] = together
    mask = np.concatenate([seen, below], 2)

    at = np.nonzero(losses)
    predicted = source[at[0], predicts[at]]
    return BlockBatch(
        tokens=torch.from_numpy(rows.row_of[features.tokens[text]]),
        hidden=torch.from_numpy(features.hidden[before].astype(np.float32)),
        slots=torch.from_numpy(slots),
        positions=torch.from_numpy(positions[each, row] + slots),
        mask=torch.from_numpy(mask[:, None]),
        wanted=torch.from_numpy(at[0] * row.shape[1] + at[1]),
        previous=torch.from_numpy(rows.row_of[features.tokens[predicted]]),
        top_tokens=torch.from_numpy(rows.row_of[features.top_tokens[predicted]]),
        top_probs=torch.from_numpy(features.top_probs[predicted].astype(np.float32)),
        segments=torch.from_numpy(own),
        anchors=torch.from_numpy(anchors),
    )


@torch.no_grad()
def slot_weights(passes: torch.Tensor, batch: BlockBatch) -> torch.Tensor:
    """The weight of each loss, float[n]: of slot j it is the sum over the slots m from j on of
    c_0 c_1 … c_m, with c half of 1 and half of the chance that the slot's token passes (D-PACE,
    equations 7 and 8, which take the draft's own probability for that chance).

    A token whose slots are not in the batch has the mean weight of those whose slots are.

    Args:
        passes: float[n], the chance at each wanted place.
    """
    (count, length), ahead = batch.slots.shape, int(batch.slots.max())
    pack = length - ahead * batch.anchors.shape[1]
    chances = passes.new_zeros(count * length)
    chances[batch.wanted] = _SMOOTHING + (1 - _SMOOTHING) * passes  # 0 beyond a text's end
    chances = chances.view(count, length)
    first = chances.gather(1, batch.anchors)[..., None]
    slots = torch.cat([first, chances[:, pack:].view(*batch.anchors.shape, ahead)], 2)
    weights = slots.cumprod(2).flip(2).cumsum(2).flip(2)
    every = torch.full_like(chances, float(weights[..., 0].mean()))
    every.scatter_(1, batch.anchors, weights[..., 0])
    every[:, pack:] = weights[..., 1:].flatten(1)
    return every.flatten()[batch.wanted]


def main(command: Command) -> None:
    """Distils WORK/block, from WORK/draft on."""
    recipe, source = command.recipe, command.target
    features, phase = Features(command.work / FEATURES), recipe.block_phase
    layers = target.load_model(command.work / DRAFT)
    rows = read_rows(command.work / DRAFT, Tokenizer(source).size)
    hidden_layers = spread(target.read_config(source)["num_hidden_layers"], recipe.block.hidden)
    model = BlockDraft(layers, features.hidden.shape[-1], recipe.block)
    examples, prefix = features.examples(skipped=1)

    def epoch(number: int) -> Iterator[BlockBatch]:
        rng, seed = np.random.default_rng((recipe.seed, number, 1)), (recipe.seed, number)
        for packed in packing.pack(examples, prefix, phase.pack, phase.rows, seed):
            yield make_batch(features, packed, rows, recipe.block, rng)

    def loss(model: BlockDraft, batch: BlockBatch) -> torch.Tensor:
        slots = batch.slots.flatten()[batch.wanted]
        ends = model.rows(batch).flatten(0, 1)[batch.wanted]
        logits = model.logits(ends, slots, batch.previous)
        each, passes = acceptance_loss(logits, batch.top_tokens, batch.top_probs, rows.unknown)
        weights = slot_weights(passes, batch)
        return (each * weights).sum() / weights.sum()

    shaping = recipe.shaping("answers", "draft", "draft_phase", "block", "block_phase")
    fit(model, epoch, loss, phase, command.work, shaping)
    save_block(model, rows, hidden_layers, source, command.work / BLOCK)


def save_block(
    model: BlockDraft, rows: Rows, hidden_layers: Sequence[int], like: Path, out: Path
) -> None:
    """A checkpoint of the layers, with what is added to them beside.

    Args:
        hidden_layers: of the target, whose hidden states it reads.
        like: a folder with the tokenizer.
    """
    config = model.causal_lm.config
    config.block, config.hidden_layers = model.slots.num_embeddings, [*hidden_layers]
    kept = {name: weight for name, weight in model.state_dict().items() if "causal" not in name}
    with replacing_folder(out) as folder:
        model.causal_lm.save_pretrained(folder)
        save_rows(rows, folder)
        torch.save(kept, folder / WEIGHTS)
        (folder / "tokenizer.json").write_bytes((like / "tokenizer.json").read_bytes())
