"""What the target writes: its answers, for the drafts to learn from.

`python -m training.answers` answers Dolly's and OpenAssistant's training instructions,
greedily and some sampled, with the weights that are shipped (OpenVINO GenAI answers many at once).
Answers are kept as they come, so that an interrupted run continues.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import openvino as ov
import torch
from tqdm import tqdm

from pipeline.errors import UserError
from pipeline.models.export import export
from pipeline.text.prompt import END_KEY
from training import corpus, packing, target
from training.command import Command, run
from training.fit import best_device, computes_in_bfloat16
from training.quantisation import Int4Training
from training.recipe import Answers, Recipe

ANSWERS = "answers.jsonl"
_CACHE_GB = 2  # of keys and values of all answers being written
_AT_ONCE = 64  # answers that are being written

Pair = tuple[Sequence[int], Sequence[int]]  # the ids of a prompt and of the answer to it


def main(command: Command) -> None:
    """Writes WORK/answers.jsonl."""
    recipe, folder = command.recipe, command.work / target.TARGET
    prompts = instructions(target.load_tokenizer(folder), command.data, recipe)
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


def instructions(tokenizer: Any, data: Path, recipe: Recipe) -> list[list[int]]:
    """The prompts to answer: Dolly's and OpenAssistant's, shuffled, short enough."""
    records = corpus.training_records(data) + corpus.oasst(data)
    Random(recipe.seed).shuffle(records)
    room = recipe.draft_phase.pack - recipe.answers.longest
    prompts = (packing.prompt_ids(tokenizer, record) for record in records)
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
    import openvino_genai

    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size, scheduler.max_num_seqs = _CACHE_GB, _AT_ONCE
    pipe = openvino_genai.ContinuousBatchingPipeline(folder, scheduler, "CPU")

    def configuration_of(batch: Batch, index: int) -> Any:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens, config.stop_token_ids = answers.longest, {end}
        config.do_sample = batch.sample > 0
        if config.do_sample:
            config.temperature, config.top_p = answers.temperature, answers.top_p
            config.rng_seed = (batch.sample * 10_000 + batch.number) * answers.batch + index
        return config

    def write(batch: Batch) -> list[list[int]]:
        inputs = [ov.Tensor(np.array([prompt], np.int64)) for prompt in batch.prompts]
        configs = [configuration_of(batch, index) for index in range(len(inputs))]
        return [list(result.m_generation_ids[0]) for result in pipe.generate(inputs, configs)]

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
    """The batches answered so far; a last line that an interruption cut short is taken off."""
    done: dict[tuple[int, int], list[Pair]] = {}
    if not path.is_file():
        return done
    whole, _, cut = path.read_text(encoding="utf-8").rpartition("\n")
    if cut:
        path.write_text(f"{whole}\n" if whole else "", encoding="utf-8")
    for line in whole.splitlines():
        sample, number, pairs = json.loads(line)
        done[sample, number] = [(prompt, answer) for prompt, answer in pairs]
    return done


if __name__ == "__main__":
    run(main, __doc__)
