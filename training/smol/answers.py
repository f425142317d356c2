"""What the target writes: its answers and its probabilities, kept for the draft to learn from.

`python -m training.smol.answers` answers Dolly's and OpenAssistant's training instructions,
greedily and sampled, and keeps the target's likeliest tokens at every position: distilling then
needs no target. Answers are kept as they come, so that an interrupted run continues.
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

from training import corpus, packing
from training.answers import write_answers
from training.fit import best_device, computes_in_bfloat16
from training.profiles import Answers
from training.quantisation import Int4Training
from training.smol import target
from training.smol.command import Command, run
from training.smol.recipe import Recipe
from training.table import TABLE, Pair, make_table, save_table

ANSWERS = "answers.jsonl"


def main(command: Command) -> None:
    """Writes WORK/answers.jsonl, then WORK/answers.pt."""
    recipe, folder = command.recipe, command.work / target.TARGET
    tokenizer, model = target.load_tokenizer(folder), target.load_model(folder)
    # The teacher is what will be shipped: the target in INT4.
    Int4Training(model, recipe.target.int4_group).quantise()
    device = best_device()
    if computes_in_bfloat16(device):
        model = model.to(torch.bfloat16)
    model = model.to(device).eval()
    torch.manual_seed(recipe.seed)
    prompts = instructions(tokenizer, command.data, recipe)
    kept = command.work / ANSWERS
    done = _read(kept)
    for batch in tqdm(_batches(prompts, recipe.answers), desc="answers"):
        key = (batch.sampled, batch.number)
        if key not in done:
            written = write_answers(model, tokenizer, batch.prompts, recipe.answers, batch.sampled)
            done[key] = list(zip(batch.prompts, written, strict=True))
            with kept.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps([*key, done[key]]) + "\n")
    pairs = [pair for answers in done.values() for pair in answers]
    prefix, phase = packing.shared_prefix(tokenizer), recipe.draft_phase
    logits_of = target.packed_logits
    table = make_table(model, logits_of, pairs, prefix, phase.pack, recipe.answers.top)
    save_table(table, command.work, configuration(recipe))
    print(f"{len(pairs)} answers, {len(table.tokens)} tokens, in {command.work / TABLE}")


def instructions(tokenizer: Any, data: Path, recipe: Recipe) -> list[list[int]]:
    """The prompts to answer: Dolly's and OpenAssistant's, shuffled, short enough."""
    records = corpus.training_records(data) + corpus.oasst(data)
    Random(recipe.seed).shuffle(records)
    room = recipe.draft_phase.pack - recipe.answers.longest
    prompts = (packing.prompt_ids(tokenizer, record) for record in records)
    short = [prompt for prompt in prompts if len(prompt) <= room]
    return short[: recipe.answers.unseen]


@dataclasses.dataclass(frozen=True, slots=True)
class _Batch:
    sampled: int  # which sample; 0 is the greedy answer
    number: int
    prompts: list[list[int]]


def _batches(prompts: Sequence[list[int]], answers: Answers) -> Iterator[_Batch]:
    """Prompts of like length together, greedily first: padding costs as much as answering."""
    ordered = sorted(prompts, key=len)
    for sampled in range(1 + answers.samples):
        for number, at in enumerate(range(0, len(ordered), answers.batch)):
            yield _Batch(sampled, number, ordered[at : at + answers.batch])


def configuration(recipe: Recipe) -> str:
    """All of the recipe that shapes the table, as text."""
    parts = dataclasses.asdict(recipe)
    return target.fingerprint(recipe) + json.dumps([parts["answers"], parts["draft_phase"]["pack"]])


def _read(path: Path) -> dict[tuple[int, int], list[Pair]]:
    """The batches answered so far; a last line that an interruption cut short is taken off."""
    done: dict[tuple[int, int], list[Pair]] = {}
    if not path.is_file():
        return done
    whole, _, cut = path.read_text(encoding="utf-8").rpartition("\n")
    if cut:
        path.write_text(f"{whole}\n" if whole else "", encoding="utf-8")
    for line in whole.splitlines():
        sampled, number, pairs = json.loads(line)
        done[sampled, number] = [(prompt, answer) for prompt, answer in pairs]
    return done


if __name__ == "__main__":
    run(main, __doc__)
