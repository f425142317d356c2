"""The draft: some of the target's layers, distilled. `python -m training.draft`

It knows the tokens that the answers use most; any other token of a text is read as one unknown
token, and is never proposed. The loss aims at acceptance (LK loss, arXiv 2602.23881): with p the
target's and q the draft's distribution, and a = sum min(p, q) the chance that a drafted token
passes, it is lambda KL(p, q) + (1 - lambda) TV(p, q) with lambda = exp(-3 a): likelihood first,
acceptance later.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch

from pipeline.text.prompt import ADDED_TOKENS
from training import packing, target
from training.answers import configuration
from training.command import Command, run
from training.fit import fit
from training.packing import Batch
from training.table import Table, load_table

DRAFT, TARGET_IDS = "draft", "target_ids.json"
UNKNOWN = 0  # row of the draft: <|endoftext|>, which no answer uses
_SHARPNESS = 3.0


def main(command: Command) -> None:
    """Distils WORK/draft, a checkpoint of transformers, with the map of its rows beside it."""
    recipe, source = command.recipe, command.work / target.TARGET
    table = load_table(command.work, configuration(recipe), "training.answers")
    tokenizer = target.load_tokenizer(source)
    added = [tokenizer.token_to_id(text) for text in ADDED_TOKENS]
    ids = frequent_tokens(table, recipe.draft.vocabulary, [UNKNOWN, *added])
    model = make_draft(target.load_model(source), recipe.draft.layers, ids)
    prefix = packing.shared_prefix(tokenizer)

    def epoch(number: int) -> Iterator[Batch]:
        order = recipe.seed * 100_000 + number
        phase = recipe.draft_phase
        return packing.pack(table.examples, prefix, phase.pack, phase.rows, order)

    fit(
        model,
        epoch,
        acceptance_loss(table, rows_of(ids, tokenizer.get_vocab_size())),
        recipe.draft_phase,
        decay=recipe.weight_decay,
        folder=command.work,
        configuration=target.fingerprint(recipe, "repetition", "answers", "draft", "draft_phase"),
    )
    model.config.target_ids = TARGET_IDS
    out = command.work / DRAFT
    target.save_model(model, source, out)
    (out / TARGET_IDS).write_text(json.dumps(ids))
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters in {out}")


def frequent_tokens(table: Table, count: int, always: list[int]) -> list[int]:
    """The ids of the `count` tokens that the answers use most, ascending; `always` among them."""
    used = Counter(dict.fromkeys(always, 1 << 40))
    for example in table.examples:
        used.update(
            token
            for token, wanted in zip(example.tokens[1:], example.targets, strict=False)
            if wanted != packing.IGNORED
        )
    for token in table.tokens[:, 0].tolist():
        used[token] += 1
    return sorted(token for token, _ in used.most_common(count))


def rows_of(ids: list[int], vocab_size: int) -> torch.Tensor:
    """int64[vocab_size]: the draft's row of each of the target's ids, or `UNKNOWN`."""
    rows = torch.full((vocab_size,), UNKNOWN)
    rows[torch.tensor(ids)] = torch.arange(len(ids))
    return rows


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


def acceptance_loss(table: Table, rows: torch.Tensor) -> Callable[[Any, Batch], torch.Tensor]:
    """The LK loss in nats. Of the target's probabilities, those kept in the table count; mass on
    tokens that the draft lacks can never be accepted.
    """

    def loss(model: Any, batch: Batch) -> torch.Tensor:
        read = dataclasses.replace(batch, tokens=rows.to(batch.tokens.device)[batch.tokens])
        logits, places = target.packed_logits(model, read)
        tokens = rows[table.tokens[places.cpu()].long()].to(logits.device)
        known = tokens != UNKNOWN
        target_probs = table.probs[places.cpu()].float().to(logits.device) * known
        logs = logits.float().log_softmax(-1).gather(-1, tokens)
        passes = torch.minimum(target_probs, logs.exp()).sum(-1)
        weight = torch.exp(-_SHARPNESS * passes.detach())
        divergence = -(target_probs * logs).sum(-1)
        return (weight * divergence + (1 - weight) * (1 - passes)).mean()

    return loss


if __name__ == "__main__":
    run(main, __doc__)
