"""The draft: one small model that learns to say what the target would. `python -m training.distil`

It sees the target's own answers and matches its probabilities (sequence-level and word-level
distillation, Kim and Rush 2016), which is what acceptance measures.
"""

from __future__ import annotations

import dataclasses
import json

import torch
from transformers import GPTNeoXForCausalLM

from training import packing
from training.answers import configuration
from training.command import Command, run
from training.files import replacing
from training.fit import Loss, fit
from training.model import new_model, packed_logits
from training.profiles import Profile
from training.table import Table, load_table
from training.tokenizer import load_tokenizer
from training.train import shuffled


def distillation_loss(table: Table) -> Loss:
    """Cross-entropy, in nats, of the draft against the target's kept probabilities."""

    def loss(model: GPTNeoXForCausalLM, batch: packing.Batch) -> torch.Tensor:
        logits, rows = packed_logits(model, batch)
        rows = rows.to(table.tokens.device)
        tokens = table.tokens[rows].long().to(logits.device)
        probs = table.probs[rows].float().to(logits.device)
        logs = logits.float().log_softmax(-1).gather(-1, tokens)
        return -(probs * logs).sum(-1).mean()

    return loss


def weights_file(profile: Profile) -> str:
    return f"{profile.draft_phase.name}.pt"


def fingerprint(profile: Profile) -> str:
    """All that shapes the draft, as text."""
    parts = dataclasses.asdict(profile)
    return configuration(profile) + json.dumps([parts["draft"], parts["draft_phase"]])


def main(command: Command) -> None:
    """Distils the draft and writes its weights."""
    profile = command.profile
    table = load_table(command.work, configuration(profile), "training.answers")
    prefix = packing.shared_prefix(load_tokenizer(command.work))
    model = new_model(profile.draft, profile)
    fit(
        model,
        shuffled(lambda _: table.examples, prefix, profile.draft_phase, profile.seed),
        distillation_loss(table),
        profile.draft_phase,
        decay=profile.weight_decay,
        folder=command.work,
        configuration=fingerprint(profile),
    )
    weights = command.work / weights_file(profile)
    with replacing(weights) as path:
        torch.save(model.state_dict(), path)
    print(f"the draft's weights are in {weights}")


if __name__ == "__main__":
    run(main, __doc__)
