"""Stage `target`: the base fine-tuned on Dolly's instructions.

As Databricks made Dolly v2 of Pythia: every category, with contexts, the loss on the response only.
The responses are a larger model's (`lab.training.teacher`); people's own where those are better,
which is where a context holds the answer, and where things are to be classified; and our own
records, about this demonstration and what newcomers ask first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from lab import corpus
from lab.corpus import Record
from lab.training import packing
from lab.training.base import BASE
from lab.training.command import Command
from lab.training.files import read_lines, replacing_folder
from lab.training.fit import fit
from lab.training.packing import IGNORED, Batch
from lab.training.recipe import Recipe
from pipeline.errors import UserError
from pipeline.models.json_file import read_json
from pipeline.text.prompt import END_KEY
from pipeline.text.tokenizer import Tokenizer
from pipeline.trace.repetition import repeats

TUNED, TARGET = "tuned", "target"
TAUGHT = "taught.jsonl"  # [Dolly's id, answer] a line; the answer is empty if it was bad
OWN = Path(__file__).with_name("own_records.jsonl")
_PEOPLE_SHARE = 3  # one of people's answers to so many of the teacher's
_SHORTEST = 20  # words of an answer; a race needs something to watch
_OWN_TIMES = 5  # that one of our own records is read while each other one is read once
_SORTING = re.compile(
    r"^(please )?(classify|categori[sz]e|sort|group|identify which|tell me (if|which|whether)|"
    r"which of (the following|these)|label|assign|extract|split)\b",
    re.IGNORECASE,
)


def main(command: Command) -> None:
    """Fine-tunes WORK/base and writes WORK/tuned, a checkpoint of transformers."""
    recipe, source = command.recipe, command.work / BASE
    tokenizer, model = load_tokenizer(source), load_model(source)
    records = lessons(command)
    examples = dolly_examples(tokenizer, records, recipe)
    prefix, phase = tokenizer.shared_prefix, recipe.target

    def epoch(number: int) -> Iterator[Batch]:
        return packing.pack(examples, prefix, phase.pack, phase.rows, (recipe.seed, number))

    print(f"{len(examples)} of {len(records)} records are short enough")
    fit(model, epoch, next_token_loss, phase, command.work, recipe.shaping("target"))
    save_model(model, source, command.work / TUNED)


def lessons(command: Command) -> list[Record]:
    """What the target is taught: the teacher's answers so far, people's where those are better, and
    our own records, all but held-out questions.
    """
    records = corpus.training_records_by_id(command.data)
    taught = dict(read_lines(command.work / TAUGHT))
    if not taught:
        return [*records.values(), *own_records(command)]
    answered = [
        replace(records[number], response=text)
        for number, text in taught.items()
        if not repeats((), text)  # as a list that has an item again and again
    ]
    people = [record for record in records.values() if by_people(record)]
    Random(command.recipe.seed).shuffle(people)
    answered, people = long_ones(answered), long_ones(people)
    share = len(answered) // _PEOPLE_SHARE
    return [*answered, *people[:share], *own_records(command) * _OWN_TIMES]


def long_ones(records: list[Record]) -> list[Record]:
    """Those with an answer that there is something to watch in."""
    return [record for record in records if len(record.response.split()) >= _SHORTEST]


def own_records(command: Command) -> list[Record]:
    """About this demonstration, and what newcomers ask a model first, in several wordings."""
    tested = {record.question for record in corpus.held_out(command.data)}
    return [each for row in read_lines(OWN) if (each := Record(**row)).question not in tested]


def by_people(record: Record) -> bool:
    """Whether people's answer is the better one."""
    return bool(record.context) or bool(_SORTING.match(record.instruction))


def dolly_examples(
    tokenizer: Tokenizer, records: list[Record], recipe: Recipe
) -> list[packing.Example]:
    """Those records that are short enough, with the loss on their response, which ends as Dolly was
    taught to end it.
    """
    prefix = len(tokenizer.shared_prefix)
    examples = []
    for record in records:
        prompt = tokenizer.ask(record.instruction, record.context)
        response = tokenizer.encode(f"{record.response}\n\n{END_KEY}")
        if len(prompt) + len(response) <= recipe.longest and len(response) <= recipe.longest_answer:
            examples.append(packing.example(prefix, prompt, response))
    return examples


def next_token_loss(model: Any, batch: Batch) -> torch.Tensor:
    """Mean cross-entropy of the next token, in nats, where there is a target."""
    logits, targets = packed_logits(model, batch)
    return cross_entropy(logits.float(), targets)


def packed_logits(model: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [n, vocab] at the n positions that have a target, and the targets, int64[n].

    The head, a fifth of this model's arithmetic, runs nowhere else.
    """
    hidden = model.base_model(
        input_ids=batch.tokens,
        attention_mask=batch.mask(),
        position_ids=batch.positions,
        use_cache=False,
    ).last_hidden_state
    wanted = batch.targets != IGNORED
    return model.get_output_embeddings()(hidden[wanted]), batch.targets[wanted]


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a stage's folder; raises UserError if that stage has not run."""
    _require(folder)
    return Tokenizer(folder)


def load_model(folder: Path) -> Any:
    """The checkpoint of a stage's folder, in float32."""
    from transformers import AutoModelForCausalLM

    _require(folder)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def save_model(model: Any, like: Path, out: Path) -> None:
    """A checkpoint with the tokenizer of the folder `like`."""
    with replacing_folder(out) as folder:
        model.save_pretrained(folder)
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            if (like / name).is_file():
                (folder / name).write_bytes((like / name).read_bytes())


def read_config(folder: Path) -> Mapping[str, Any]:
    """The configuration of a stage's checkpoint."""
    _require(folder)
    return read_json(folder / "config.json")


def _require(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        stage = {TUNED: "target", TARGET: "repetition"}.get(folder.name, folder.name)
        remedy = f"is not there; run python -m lab.training {stage} first"
        raise UserError("checkpoint", str(folder), remedy)
