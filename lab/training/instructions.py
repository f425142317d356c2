"""More instructions to answer, in the manner of Dolly's. `python -m lab.training.instructions`

The drafts learn from what the target writes, and Dolly's instructions are soon all answered. The
model of the first stage reads a few of them as a list and goes on with it (Self-Instruct, Wang et
al. 2023, arXiv 2212.10560). Nobody answers these but the target, so a bad one costs little. What a
held-out record asks is left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from tqdm import tqdm

from lab.training import corpus
from lab.training.base import BASE
from lab.training.command import Command, run
from lab.training.corpus import Record
from lab.training.files import whole_lines
from lab.training.generation import Writing, quantised, write
from lab.training.recipe import Recipe
from pipeline.runtime.model import OVModel
from pipeline.text.tokenizer import Tokenizer

INSTRUCTIONS = "instructions.jsonl"
_OPENING = "A list of questions and tasks that people typed, each on a line of its own:\n\n"
_BULLET = "-"
_WORDS = range(3, 41)  # of an instruction
_CHARACTERS = 160  # of an instruction that serves as an example


def main(command: Command) -> None:
    """Writes WORK/instructions.jsonl: a line a batch, a list of instructions."""
    recipe, source, kept = command.recipe, command.work / BASE, command.work / INSTRUCTIONS
    known = corpus.training_records(command.data)
    seen = {record.question for record in known + corpus.held_out(command.data)}
    shown = [r.instruction for r in known if not r.context and len(r.instruction) < _CHARACTERS]
    done = len(whole_lines(kept))
    seen.update(record.question for record in read_instructions(command.work))
    if done < recipe.instructions.batches:
        write = _writer(source, shown, recipe)
    for number in tqdm(range(done, recipe.instructions.batches), desc="instructions"):
        new = {Record(text, "", "").question: text for text in write(number)}
        fresh = [text for question, text in new.items() if question not in seen]
        seen.update(new)
        with kept.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(fresh) + "\n")
    print(f"{len(read_instructions(command.work))} instructions in {kept}")


def read_instructions(work: Path) -> list[Record]:
    """Those written so far, without context or response."""
    return [
        Record(text, "", "")
        for line in whole_lines(work / INSTRUCTIONS)
        for text in json.loads(line)
    ]


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


def _writer(source: Path, shown: list[str], recipe: Recipe) -> Any:
    """A function from the number of a batch to its instructions."""
    folder = quantised(source, source.parent, recipe.weights)
    tokenizer, model = Tokenizer(folder), OVModel(folder)
    asked = recipe.instructions
    writing = Writing(asked.longest, tokenizer.end_ids, asked.temperature, asked.top_p)

    def write_batch(number: int) -> list[str]:
        rng = Random(f"{recipe.seed} {number}")
        prompts = []
        for place in range(asked.lists):
            examples = (" ".join(text.split()) for text in rng.sample(shown, asked.shots))
            lines = "".join(f"{_BULLET} {text}\n" for text in examples)
            prompt = f"{_OPENING}{lines}{_BULLET}"
            prompts.append((place, tokenizer.encode(prompt)))
        texts = write(model, prompts, writing, vocab_size=tokenizer.size, seed=number)
        ordered = sorted(texts, key=lambda text: text.number)
        return [line for text in ordered for line in listed(tokenizer.decode(text.tokens))]

    return write_batch


if __name__ == "__main__":
    run(main, __doc__)
