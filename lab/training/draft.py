"""Stage `draft`: some of the target's layers, distilled.

It knows the tokens that the answers use most; any other token of a text is read as one unknown
token, and is never proposed.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lab.training import packing, target
from lab.training.command import Command
from lab.training.features import FEATURES, Features
from lab.training.fit import fit
from lab.training.packing import Batch
from lab.training.recipe import Recipe, ends
from pipeline.models.export import INT4_GROUP
from pipeline.text.tokenizer import Tokenizer

DRAFT, TARGET_IDS = "draft", "target_ids.json"
_SHARPNESS = 3.0
_LAYER = re.compile(r"(.*\.layers\.)(\d+)(\..*)")


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """The tokens that a draft knows, as rows of its embedding and head.

    Attributes:
        unknown: the row that all other tokens are read as, and that is never to be proposed: the
            one whose own token answers use least.
    """

    ids: list[int]  # the target's token of each row, ascending
    row_of: NDArray[np.int64]  # [target's vocabulary], the row of each of the target's tokens
    unknown: int


def main(command: Command) -> None:
    """Distils WORK/draft, a checkpoint of transformers, with the map of its rows beside it."""
    recipe, source = command.recipe, command.target
    features, phase = Features(command.work / FEATURES), recipe.draft_phase
    rows = vocabulary(features, Tokenizer(source), recipe)
    model = make_draft(
        target.load_model(source), recipe.draft.layers, rows.ids, recipe.draft.feed_forward
    )
    examples, prefix = features.examples()

    def epoch(number: int) -> Iterator[Batch]:
        seed = recipe.seed, number
        for batch in packing.pack(examples, prefix, phase.pack, phase.rows, seed):
            tokens = rows.row_of[features.tokens[batch.tokens.numpy()]]
            yield dataclasses.replace(batch, tokens=torch.from_numpy(tokens))

    def loss(model: Any, batch: Batch) -> torch.Tensor:
        logits, targets = target.packed_logits(model, batch)  # which are rows of the features
        places = targets.cpu().numpy()
        tokens = torch.from_numpy(rows.row_of[features.top_tokens[places]]).to(logits.device)
        probs = torch.from_numpy(features.top_probs[places]).to(logits.device)
        return acceptance_loss(logits, tokens, probs, rows.unknown)[0].mean()

    shaping = recipe.shaping("answers", "draft", "draft_phase")
    fit(model, epoch, loss, phase, command.work, shaping)
    target.save_model(model, source, command.work / DRAFT)
    save_rows(rows, command.work / DRAFT)


def vocabulary(features: Features, tokenizer: Tokenizer, recipe: Recipe) -> Rows:
    """The tokens that answers use most, with those that end an answer or stand in every prompt."""
    counts = np.bincount(features.likeliest(), minlength=tokenizer.size)
    needed = [*(tokenizer.end_ids | features.prompt_tokens())]
    order = counts.copy()
    order[needed] += len(features.tokens) + 1
    ids = np.sort(np.argsort(-order, kind="stable")[: recipe.draft.vocabulary])
    optional = np.where(np.isin(ids, needed), np.iinfo(np.int64).max, counts[ids])
    unknown = int(optional.argmin())
    return _rows(ids.tolist(), unknown, len(counts))


def _rows(ids: list[int], unknown: int, size: int) -> Rows:
    row_of = np.full(size, unknown)
    row_of[ids] = np.arange(len(ids))
    return Rows(ids, row_of, unknown)


def read_rows(folder: Path, size: int) -> Rows:
    """Those of the draft model in a folder, for a target with so many tokens."""
    unknown = target.read_config(folder)["unknown_row"]
    return _rows(json.loads((folder / TARGET_IDS).read_text()), unknown, size)


def save_rows(rows: Rows, folder: Path) -> None:
    """Writes the map of a draft's rows into the folder of its checkpoint."""
    (folder / TARGET_IDS).write_text(json.dumps(rows.ids))
    path = folder / "config.json"
    named = {"target_ids": TARGET_IDS, "unknown_row": rows.unknown}
    config = json.loads(path.read_text(encoding="utf-8")) | named
    path.write_text(json.dumps(config, indent=2), encoding="utf-8")


def acceptance_loss(
    logits: torch.Tensor, tokens: torch.Tensor, probs: torch.Tensor, unknown: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss at each position, float[n], in nats, and the chance that a token drafted there
    passes, float[n], without gradients. The loss aims at acceptance (LK loss, arXiv 2602.23881).

    With p the target's and q the draft's distribution, and a = sum min(p, q) the chance that a
    drafted token passes, it is lambda KL(p, q) + (1 - lambda) TV(p, q) with lambda = exp(-3 a):
    likelihood first, acceptance later.

    Args:
        logits: the draft's, [n, vocabulary].
        tokens: int64[n, top], the target's likeliest, as the draft's rows.
        probs: float[n, top], the target's.
        unknown: the row of tokens that the draft lacks, whose mass can never be accepted.
    """
    probs = probs.float() * (tokens != unknown)
    logs = logits.float().log_softmax(-1).gather(-1, tokens)
    passes = torch.minimum(probs, logs.exp()).sum(-1)
    weight = torch.exp(-_SHARPNESS * passes.detach())
    loss = weight * -(probs * logs).sum(-1) + (1 - weight) * (1 - passes)
    return loss, passes.detach()


def make_draft(teacher: Any, layers: int, ids: list[int], feed_forward: float = 1.0) -> Any:
    """A model of some of the teacher's layers, and of its rows of the vocabulary, with its weights.

    Args:
        teacher: of a family of transformers that keeps its decoder layers in a list `layers`:
            GPT-NeoX, Llama, Qwen2 and others.
        feed_forward: how much of the width inside the teacher's feed-forward blocks is kept: the
            channels with the largest weights, a whole number of INT4 groups.
    """
    config = copy.deepcopy(teacher.config)
    chosen, wide = ends(config.num_hidden_layers, layers), config.intermediate_size
    config.num_hidden_layers, config.vocab_size = len(chosen), len(ids)
    config.intermediate_size = min(wide, -(-int(wide * feed_forward) // INT4_GROUP) * INT4_GROUP)
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[layer] for layer in chosen]
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):  # of the target's vocabulary
        setattr(config, name, None)
    draft = type(teacher)(config)
    whole = (teacher.get_input_embeddings(), teacher.get_output_embeddings())
    vocabularies = {id(module.weight) for module in whole}
    weights: dict[str, torch.Tensor] = {}
    inside: dict[int, dict[str, torch.Tensor]] = {}  # of each layer's feed-forward block
    for name, weight in teacher.state_dict(keep_vars=True).items():
        if match := _LAYER.fullmatch(name):
            if int(match[2]) not in chosen:
                continue
            name = f"{match[1]}{chosen.index(int(match[2]))}{match[3]}"
            if config.intermediate_size < wide and wide in weight.shape:
                inside.setdefault(int(match[2]), {})[name] = weight.detach()
                continue
        weights[name] = (weight[ids] if id(weight) in vocabularies else weight).detach()
    for block in inside.values():
        weights |= narrowed(block, wide, config.intermediate_size)
    draft.load_state_dict(weights)
    return draft


def narrowed(block: dict[str, torch.Tensor], wide: int, channels: int) -> dict[str, torch.Tensor]:
    """The parameters of a feed-forward block, cut to so many of its `wide` channels: those whose
    weights in all of its matrices multiply to the largest norms.
    """
    axes = {name: [*weight.shape].index(wide) for name, weight in block.items()}
    matrices = [weight.movedim(axes[name], 0) for name, weight in block.items() if weight.ndim > 1]
    size = torch.stack([matrix.norm(dim=1).log() for matrix in matrices]).sum(0)
    kept = size.topk(channels).indices.sort().values
    return {name: weight.index_select(axes[name], kept) for name, weight in block.items()}
