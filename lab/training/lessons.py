"""What the target is taught: which instructions, and whose answers to them.

A larger model's answers (`lab.training.teacher`); people's own where those are better,
which is where a context holds the answer, and where things are to be classified; and some records
about what this demonstration is about.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from random import Random

from lab.training import corpus
from lab.training.command import Command
from lab.training.corpus import Record
from lab.training.files import whole_lines

TAUGHT = "taught.jsonl"  # [instruction, context, answer] a line; the answer is empty if it was bad
OWN = Path(__file__).with_name("own_records.jsonl")
_PEOPLE_SHARE = 3  # one of people's answers to so many of the teacher's
_SORTING = re.compile(
    r"^(please )?(classify|categori[sz]e|sort|group|identify which|tell me (if|which|whether)|"
    r"which of (the following|these)|label|assign|extract|split)\b",
    re.IGNORECASE,
)


def lessons(command: Command) -> list[Record]:
    """What the target is taught: the teacher's answers so far, people's where those are better, and
    the records about this demonstration, all but held-out questions.
    """
    records = corpus.training_records(command.data)
    taught = {
        (instruction, context): answer
        for instruction, context, answer in map(json.loads, whole_lines(command.work / TAUGHT))
        if answer
    }
    answered = [
        dataclasses.replace(record, response=taught[record.instruction, record.context])
        for record in records
        if (record.instruction, record.context) in taught
    ]
    people = [record for record in records if by_people(record) or not taught]
    Random(command.recipe.seed).shuffle(people)
    share = len(answered) // _PEOPLE_SHARE if taught else len(people)
    return [*answered, *people[:share], *own_records(command)]


def own_records(command: Command) -> list[Record]:
    """About OpenVINO, speculative decoding and this demonstration, in several wordings."""
    tested = {record.question for record in corpus.held_out(command.data)}
    records = [Record(**json.loads(line)) for line in whole_lines(OWN)]
    return [record for record in records if record.question not in tested]


def by_people(record: Record) -> bool:
    """Whether people's answer is the better one."""
    return bool(record.context) or bool(_SORTING.match(record.instruction))
