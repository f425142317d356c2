"""What the target writes, with what it computes: its answers, for the drafts to learn from.

`python -m lab.training.answers` answers the training instructions with the IR that is shipped,
greedily and some of them by sampling, into WORK/features. An interrupted run continues.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from tqdm import tqdm

from lab.training import corpus, target
from lab.training.command import Command, run
from lab.training.features import FEATURES, Features, FeatureWriter
from lab.training.generation import Prompt, Text, Writing, quantised, write
from lab.training.instructions import read_instructions
from lab.training.recipe import Answers, spread
from pipeline.runtime.model import OVModel
from pipeline.text.tokenizer import Tokenizer


def main(command: Command) -> None:
    """Writes WORK/features."""
    recipe = command.recipe
    layers = spread(target.read_layers(command.target), recipe.block.hidden)
    folder = quantised(command.target, command.work, recipe.weights)
    tokenizer = Tokenizer(folder)
    prompts = instructions(tokenizer, command)
    model = OVModel(folder, hidden_layers=layers)
    about = {
        "target": target.digest(folder),
        "layers": layers,
        "width": model.compiled.hidden_width,
        "top": recipe.answers.top,
        "answers": dataclasses.asdict(recipe.answers),
    }
    writer = FeatureWriter(command.work / FEATURES, about)
    for sample, answered in enumerate((prompts, prompts[: recipe.answers.sampled])):
        missing = [(n, p) for n, p in enumerate(answered) if (sample, n) not in writer.written]
        writing = _writing(recipe.answers, tokenizer, sample)
        written = write(
            model, missing, writing, vocab_size=tokenizer.size, layers=len(layers), seed=sample
        )
        for text in tqdm(written, desc="answers", total=len(missing)):
            writer.add(text, sample)
    features = Features(command.work / FEATURES)
    print(
        f"{len(features.ends)} answers of {features.answered} tokens in {command.work / FEATURES}"
    )


def instructions(tokenizer: Tokenizer, command: Command) -> list[list[int]]:
    """The prompts to answer that are short enough: those of the user's file, or Dolly's and
    OpenAssistant's, shuffled, and then those of WORK/instructions.jsonl.
    """
    recipe = command.recipe
    if command.instructions:
        records = corpus.own_instructions(command.instructions)
    else:
        records = corpus.training_records(command.data) + corpus.oasst(command.data)
    Random(recipe.seed).shuffle(records)
    room = recipe.block_phase.pack - recipe.answers.longest
    every = records + read_instructions(command.work)
    prompts = (tokenizer.ask(record.instruction, record.context) for record in every)
    short = [prompt for prompt in prompts if len(prompt) <= room]
    return short[: recipe.answers.instructions]


def greedy_texts(checkpoint: Path, command: Command, prompts: Sequence[Prompt]) -> Iterator[Text]:
    """The greedy answers of a checkpoint, quantised as it is shipped."""
    folder = quantised(checkpoint, command.work, command.recipe.weights)
    tokenizer = Tokenizer(folder)
    writing = dataclasses.replace(_writing(command.recipe.answers, tokenizer, 0), top=0)
    return write(OVModel(folder), prompts, writing, vocab_size=tokenizer.size)


def _writing(answers: Answers, tokenizer: Tokenizer, sample: int) -> Writing:
    """How the `sample`-th answer to a prompt is written; the first is greedy."""
    greedy = Writing(answers.longest, tokenizer.end_ids, top=answers.top)
    if not sample:
        return greedy
    return dataclasses.replace(greedy, temperature=answers.temperature, top_p=answers.top_p)


if __name__ == "__main__":
    run(main, __doc__)
