"""The target: pre-training and instruction tuning, phase by phase. `python -m training.train`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

import torch
from torch.nn.functional import cross_entropy
from transformers import GPTNeoXForCausalLM

from training import corpus, packing
from training.command import Command, run
from training.files import replacing
from training.fit import Epoch, finished, fit
from training.model import new_model, packed_logits
from training.profiles import Phase, Profile
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
        prefix: tuple[int, ...] = ()
        texts = list(corpus.prose(command.data))
        examples = list(packing.prose_examples(tokenizer, texts, profile.pack))
    else:
        prefix = packing.shared_prefix(tokenizer)
        records = corpus.instructions(command.data, profile.domain, profile.seed)
        if phase.corpus == "hasty":
            records += [corpus.hasty(record) for record in records]
        examples = [
            packing.example(
                len(prefix),
                packing.prompt_ids(tokenizer, record),
                packing.response_ids(tokenizer, record),
            )
            for record in records
        ]
    return shuffled(examples, prefix, profile, phase)


def shuffled(
    examples: list[packing.Example], prefix: tuple[int, ...], profile: Profile, phase: Phase
) -> Epoch:
    """The epochs of some examples: epoch n is the same whenever it is asked for."""

    def epoch(number: int) -> Iterator[packing.Batch]:
        seed = profile.seed * 100_000 + number
        return packing.pack(examples, prefix, profile.pack, phase.rows, seed)

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
