"""Stage `instructions`: more instructions to answer, in the manner of Dolly's.

The drafts learn from what the target writes, and Dolly's instructions are soon all answered. The
model of the first stage reads a few of them as a list and goes on with it (Self-Instruct, Wang et
al. 2023, arXiv 2212.10560). Nobody answers these but the target, so a bad one costs little. What a
held-out record asks is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

from lab import corpus
from lab.corpus import Record
from lab.training.base import BASE
from lab.training.command import Command
from lab.training.files import add_line, read_lines
from lab.training.generation import Writing, quantised, write
from pipeline.text.tokenizer import Tokenizer

INSTRUCTIONS = "instructions.jsonl"
_OPENING = "A list of questions and tasks that people typed, each on a line of its own:\n\n"
_BULLET = "-"
_WORDS = range(3, 41)  # of an instruction
_CHARACTERS = 160  # of an instruction that serves as an example


def main(command: Command) -> None:
    """Writes WORK/instructions.jsonl: a line a batch, a list of instructions."""
    kept = command.work / INSTRUCTIONS
    known = corpus.training_records(command.data)
    seen = {record.question for record in known + corpus.held_out(command.data)}
    shown = [r.instruction for r in known if not r.context and len(r.instruction) < _CHARACTERS]
    seen.update(record.question for record in read_instructions(command.work))
    done = len(read_lines(kept))
    for texts in batches(command, shown, range(done, command.recipe.instructions.batches)):
        new = {Record(text, "", "").question: text for text in texts}
        add_line(kept, [text for question, text in new.items() if question not in seen])
        seen.update(new)


def read_instructions(work: Path) -> list[Record]:
    """Those written so far, without context or response."""
    return [Record(text, "", "") for batch in read_lines(work / INSTRUCTIONS) for text in batch]


def listed(text: str) -> list[str]:
    """The instructions of a list that `text` goes on with. What stands after it, a last line that
    was cut, and lines that are too short or too long to be one are left out.
    """
    found = []
    *lines, _ = f"{_BULLET}{text}".split("\n")
    for line in lines:
        if not line.startswith(_BULLET):
            break
        line = line.removeprefix(_BULLET).strip()
        if len(line.split()) in _WORDS:
            found.append(line)
    return found


def batches(command: Command, shown: list[str], numbers: range) -> Iterator[list[str]]:
    """The instructions of each batch, which go on with lists of those `shown`."""
    asked = command.recipe.instructions
    folder = quantised(command.work / BASE, command.work, command.recipe.weights)
    tokenizer = Tokenizer(folder)
    writing = Writing(asked.longest, tokenizer.end_ids, asked.temperature, asked.top_p)
    for number in numbers:
        rng = Random(f"{command.recipe.seed} {number}")
        prompts = []
        for place in range(asked.lists):
            examples = (" ".join(text.split()) for text in rng.sample(shown, asked.shots))
            lines = "".join(f"{_BULLET} {text}\n" for text in examples)
            prompts.append((place, tokenizer.encode(f"{_OPENING}{lines}{_BULLET}")))
        texts = write(folder, prompts, writing, seed=number)
        ordered = sorted(texts, key=lambda text: text.number)
        yield [line for text in ordered for line in listed(tokenizer.decode(text.tokens))]
