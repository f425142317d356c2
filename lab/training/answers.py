"""Stage `answers`: what the target writes, with what it computes, for the drafts to learn from.

It answers the training instructions with the IR that is shipped, greedily and some of them by
sampling, into WORK/features.
"""

from __future__ import annotations

import dataclasses
from random import Random

from lab import corpus
from lab.training import target
from lab.training.command import Command
from lab.training.features import FEATURES, FeatureWriter
from lab.training.files import digest
from lab.training.generation import Writing, quantised, write
from lab.training.instructions import read_instructions
from lab.training.recipe import spread
from pipeline.text.tokenizer import Tokenizer


def main(command: Command) -> None:
    """Writes WORK/features."""
    recipe, asked = command.recipe, command.recipe.answers
    config = target.read_config(command.target)
    layers = spread(config["num_hidden_layers"], recipe.block.hidden)
    folder = quantised(command.target, command.work, recipe.weights)
    tokenizer = Tokenizer(folder)
    prompts = instructions(tokenizer, command)
    about = {
        "target": digest(folder / "openvino_model.bin"),
        "layers": layers,
        "width": len(layers) * config["hidden_size"],
        "top": asked.top,
        "answers": dataclasses.asdict(asked),
    }
    writer = FeatureWriter(command.work / FEATURES, about)
    for sample, answered in enumerate((prompts, prompts[: asked.sampled])):
        missing = [(n, p) for n, p in enumerate(answered) if (sample, n) not in writer.written]
        # The first answer to a prompt is greedy.
        shaping = (asked.temperature, asked.top_p) if sample else (0.0, 1.0)
        writing = Writing(asked.longest, tokenizer.end_ids, *shaping, asked.top)
        for text in write(folder, missing, writing, hidden_layers=layers, seed=sample):
            writer.add(text, sample)


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
