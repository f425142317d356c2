"""What the target writes: its answers, for the drafts to learn from.

`python -m training.answers` answers Dolly's and OpenAssistant's training instructions and the
written ones, greedily and some sampled, with the weights that are shipped.
Answers are kept as they come, so that an interrupted run continues.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import torch
from tqdm import tqdm

from pipeline.errors import UserError
from pipeline.models.export import export
from pipeline.text.prompt import END_KEY
from training import corpus, packing, target
from training.command import Command, run
from training.files import whole_lines
from training.fit import best_device, computes_in_bfloat16
from training.generation import Writing, generator
from training.instructions import read_instructions
from training.quantisation import Int4Training
from training.recipe import Answers, Recipe

ANSWERS = "answers.jsonl"

Pair = tuple[Sequence[int], Sequence[int]]  # the ids of a prompt and of the answer to it


def main(command: Command) -> None:
    """Writes WORK/answers.jsonl."""
    recipe, folder = command.recipe, command.work / target.TARGET
    prompts = instructions(target.load_tokenizer(folder), command)
    pairs = write_all(folder, command.work / ANSWERS, prompts, recipe.answers)
    tokens = sum(len(answer) for _, answer in pairs)
    print(f"{len(pairs)} answers of {tokens} tokens in {command.work / ANSWERS}")


def read_answers(work: Path) -> list[Pair]:
    """All answers written so far, with their prompts.

    Raises:
        UserError: there are none.
    """
    path = work / ANSWERS
    pairs = [pair for answered in _read(path).values() for pair in answered]
    if not pairs:
        raise UserError("answers", str(path), "are not there; run python -m training.answers first")
    return pairs


def write_all(
    folder: Path, kept: Path, prompts: Sequence[list[int]], answers: Answers
) -> list[Pair]:
    """The answers of a checkpoint in INT4: greedy ones to all prompts, then the sampled ones.

    Args:
        folder: of the checkpoint; its IR is written to ir/ beside it.
        kept: a file of answers written earlier, which grows.
    """
    done = _read(kept)
    missing = [batch for batch in _batches(prompts, answers) if batch.key not in done]
    if missing:
        quantised = folder.parent / "ir" / folder.name / "int4"
        if not quantised.exists():
            export(folder, quantised, "int4")
        end = target.load_tokenizer(folder).token_to_id(END_KEY)
        write = writer(quantised, answers, end)
    for batch in tqdm(missing, desc="answers"):
        done[batch.key] = list(zip(batch.prompts, write(batch), strict=True))
        with kept.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps([*batch.key, done[batch.key]]) + "\n")
    return [pair for answered in done.values() for pair in answered]


def instructions(tokenizer: Any, command: Command) -> list[list[int]]:
    """The prompts to answer that are short enough: Dolly's and OpenAssistant's, shuffled, and then
    those of WORK/instructions.jsonl.
    """
    recipe = command.recipe
    records = corpus.training_records(command.data) + corpus.oasst(command.data)
    Random(recipe.seed).shuffle(records)
    room = recipe.draft_phase.pack - recipe.answers.longest
    every = records + read_instructions(command.work)
    prompts = (packing.prompt_ids(tokenizer, record) for record in every)
    short = [prompt for prompt in prompts if len(prompt) <= room]
    return short[: recipe.answers.instructions]


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """Prompts answered at once.

    Attributes:
        sample: which answer to each; 0 is the greedy one.
        number: of the batch.
    """

    sample: int
    number: int
    prompts: list[list[int]]

    @property
    def key(self) -> tuple[int, int]:
        return self.sample, self.number


def writer(folder: Path, answers: Answers, end: int) -> Any:
    """A function from a `Batch` to its answers, by the model of an IR's folder: each up to and with
    the end token, or cut at the longest.
    """
    generate = generator(folder)
    greedy = Writing(answers.longest, frozenset({end}))
    sampled = Writing(greedy.longest, greedy.ends, answers.temperature, answers.top_p)

    def write(batch: Batch) -> list[list[int]]:
        seed = (batch.sample * 10_000 + batch.number) * answers.batch
        return generate(batch.prompts, sampled if batch.sample else greedy, seed)

    return write


def _batches(prompts: Sequence[list[int]], answers: Answers) -> Iterator[Batch]:
    for sample, answered in enumerate((prompts, prompts[: answers.sampled])):
        for number, at in enumerate(range(0, len(answered), answers.batch)):
            yield Batch(sample, number, list(answered[at : at + answers.batch]))


def teacher(folder: Path, recipe: Recipe) -> Any:
    """The target in INT4, as it is shipped."""
    model = target.load_model(folder)
    Int4Training(model, recipe.target.int4_group).quantise()
    device = best_device()
    if computes_in_bfloat16(device):
        model = model.to(torch.bfloat16)
    return model.to(device).eval()


def _read(path: Path) -> dict[tuple[int, int], list[Pair]]:
    """The batches answered so far."""
    done: dict[tuple[int, int], list[Pair]] = {}
    for line in whole_lines(path):
        sample, number, pairs = json.loads(line)
        done[sample, number] = [(prompt, answer) for prompt, answer in pairs]
    return done


if __name__ == "__main__":
    run(main, __doc__)
