"""Stage `acceptance`: which share of a draft's tokens the target accepts at each position.

Measured greedily on held-out questions, and written into the drafts' configurations: `auto` begins
from it, and the page shows it beside what a run accepts.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from tqdm import tqdm

from lab import corpus
from lab.corpus import Record
from lab.training.command import Command
from lab.training.files import read_json, write_json
from pipeline.decoding.drafters.block import BLOCK
from pipeline.decoding.drafters.model import MODEL
from pipeline.dolly import Dolly
from pipeline.request import MAX_DRAFT_LENGTH, Request
from pipeline.trace.metrics import acceptance_by_position
from pipeline.trace.record import StepRecord

_QUESTIONS, _TOKENS = 60, 100  # and the most tokens of an answer
_TESTS = 20  # at a position, for its share to say anything
_DRAFTERS = {"draft": MODEL, "block": BLOCK}  # by the model's folder


def main(command: Command) -> None:
    """Measures the drafts of WORK/pair."""
    dolly, asked = Dolly(command.work / "pair"), questions(command)
    for folder, drafter in _DRAFTERS.items():
        if asked and drafter.name in dolly.pair.drafters:
            shares = [round(share, 3) for share in acceptance(dolly, drafter.name, asked)]
            _write(command.work / "pair" / folder / "config.json", shares)
            print(f"{folder}: {', '.join(f'{share:.0%}' for share in shares)}")


def questions(command: Command) -> list[Record]:
    """Some that nothing was trained on."""
    if command.instructions:
        held_out = corpus.own_instructions(command.instructions, held_out=True)
    else:
        held_out = corpus.held_out(command.data)
    Random(command.recipe.seed).shuffle(held_out)
    return held_out[:_QUESTIONS]


def acceptance(dolly: Dolly, drafter: str, asked: list[Record]) -> list[float]:
    """By position, of those drafts of which all tokens before were accepted; up to the last
    position with enough of them.
    """
    steps: list[StepRecord] = []
    for record in tqdm(asked, desc=drafter):
        prompt = dolly.tokenizer.ask(record.instruction, record.context)
        if len(prompt) + _TOKENS < dolly.context_length:
            request = Request(
                record.instruction,
                record.context,
                max_new_tokens=_TOKENS,
                temperature=0.0,
                drafter=drafter,
                draft_length=MAX_DRAFT_LENGTH,
            )
            lane = dolly.start(request, "speculative").finish().speculative
            steps += lane.steps if lane else ()
    return [each.rate for each in acceptance_by_position(steps) if each.tested >= _TESTS]


def _write(config: Path, shares: list[float]) -> None:
    write_json(config, read_json(config, "export the pair again") | {"acceptance": shares})
