"""The target: pre-training and instruction tuning, phase by phase. `python -m training.train`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from random import Random

import torch
from tokenizers import Tokenizer
from torch.nn.functional import cross_entropy
from transformers import GPTNeoXForCausalLM

from training import corpus, packing
from training.command import Command, run
from training.files import replacing
from training.fit import Epoch, finished, fit
from training.model import new_model, packed_logits
from training.profiles import Phase, Profile
from training.rewording import Wording, reword
from training.tokenizer import load_tokenizer

WEIGHTS = "target.pt"


def next_token_loss(model: GPTNeoXForCausalLM, batch: packing.Batch) -> torch.Tensor:
    """Mean cross-entropy of the next token, in nats, where there is a target."""
    logits, targets = packed_logits(model, batch)
    return cross_entropy(logits.float(), targets)


def epochs(command: Command, phase: Phase) -> Epoch:
    """What `phase` reads, as packed batches, in a new order each epoch."""
    profile, tokenizer = command.profile, load_tokenizer(command.work)
    if phase.corpus == "prose":
        texts = list(corpus.prose(command.data))
        prose = list(packing.prose_examples(tokenizer, texts, phase.pack))
        return shuffled(lambda _: prose, (), phase, profile.seed)
    prefix = packing.shared_prefix(tokenizer)
    records = corpus.instructions(command.data, profile.domain, profile.seed)
    wordings = [Wording(record) for record in records]
    others = (
        corpus.unseen(command.data, records, len(records), profile.seed)
        if phase.corpus == "reworded"
        else []
    )

    def examples(number: int) -> list[packing.Example]:
        draw = Random(f"{profile.seed} {number}")
        asked = (
            [reword(record, others, draw, phase.foreign) for record in records]
            if others
            else wordings
        )
        made = [taught(tokenizer, len(prefix), wording) for wording in asked]
        return packing.astray(made, phase.astray, draw) if phase.astray else made

    return shuffled(examples, prefix, phase, profile.seed)


def taught(tokenizer: Tokenizer, prefix: int, wording: Wording) -> packing.Example:
    """The example that teaches a record's response to a wording of its instruction."""
    prompt = packing.prompt_ids(tokenizer, wording.record)
    response = packing.response_ids(tokenizer, wording.record)
    return packing.example(prefix, prompt, response, wording.given)


def shuffled(
    examples: Callable[[int], Sequence[packing.Example]],
    prefix: tuple[int, ...],
    phase: Phase,
    seed: int,
) -> Epoch:
    """Packed epochs of some examples, given per epoch: epoch n is the same whenever asked for."""

    def epoch(number: int) -> Iterator[packing.Batch]:
        order = seed * 100_000 + number
        return packing.pack(examples(number), prefix, phase.pack, phase.rows, order)

    return epoch


def fingerprint(profile: Profile) -> str:
    """All of the profile that shapes the target, as text."""
    parts = dataclasses.asdict(profile)
    for later in ("name", "draft", "draft_phase", "answers"):
        del parts[later]
    return json.dumps(parts)


def main(command: Command) -> None:
    """Runs every phase that is not over yet, then writes the target's weights."""
    profile, configuration = command.profile, fingerprint(command.profile)
    model = new_model(profile.target, profile)
    for phase in profile.target_phases:
        weights = finished(command.work, phase, configuration)
        if weights is not None:
            model.load_state_dict(weights)
            continue
        fit(
            model,
            epochs(command, phase),
            next_token_loss,
            phase,
            decay=profile.weight_decay,
            folder=command.work,
            configuration=configuration,
        )
    with replacing(command.work / WEIGHTS) as path:
        torch.save(model.state_dict(), path)
    print(f"the target's weights are in {command.work / WEIGHTS}")


if __name__ == "__main__":
    run(main, __doc__)
