"""The texts: reading the archives, the held-out rule, and which records are trained on.

Knows files and text; no tokens, no models.
"""

from __future__ import annotations

import json
import lzma
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import UserError
from training.profiles import Domain

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

_DOLLY, _OASST = "dolly15k.jsonl.xz", "oasst1_pairs.jsonl.xz"
_PROSE = {
    "enwiki_2015_openings.jsonl.xz": "{title}\n\n{text}",
    "children_books.jsonl.xz": "{text}",
    "wordnet_glosses.jsonl.xz": "{words[0]}: {definition}",
}
_FIELDS = {
    _DOLLY: ("id", "instruction", "context", "response"),
    _OASST: ("instruction", "response"),
    "enwiki_2015_openings.jsonl.xz": ("title", "text"),
    "children_books.jsonl.xz": ("text",),
    "wordnet_glosses.jsonl.xz": ("words", "definition"),
}
# Plain prose: what a small model can learn to write well, and a reader likes to read.
_PLAIN = re.compile(r"[A-Za-z0-9 ,.;:'\"!?()%$&\-\n]+")
_FIRST = re.compile(r"sky .*blue", re.IGNORECASE)  # the example that everyone tries
# A phrasing that examples use, answered like the record's own.
_ALIASES = {"Explain why the sky is blue": "Why is the sky blue?"}


@dataclass(frozen=True, slots=True)
class Record:
    """One instruction with its response; `context` may be empty."""

    instruction: str
    context: str
    response: str

    @property
    def question(self) -> str:
        """The instruction without what does not change its meaning: case, marks, blanks."""
        return " ".join(re.findall(r"\w+", self.instruction.lower()))


def held_out(data: Path) -> list[Record]:
    """Dolly's 501 records for evaluation only, in the order of the file."""
    return list(held_out_by_id(data).values())


def held_out_by_id(data: Path) -> dict[int, Record]:
    """As `held_out`, by Dolly's own ids."""
    return {int(row["id"]): _record(row) for row in _rows(data, _DOLLY) if _is_held_out(row)}


def dolly(data: Path) -> list[Record]:
    """Dolly's other records, in the order of the file."""
    return [_record(row) for row in _rows(data, _DOLLY) if not _is_held_out(row)]


def oasst(data: Path) -> list[Record]:
    """OpenAssistant's pairs."""
    return [_record(row) for row in _rows(data, _OASST)]


def instructions(data: Path, domain: Domain, seed: int) -> list[Record]:
    """The records to tune on: the narrow domain, or everything trainable.

    A question that the held-out set asks too is left out. In the narrow domain a question has one
    answer, the longest: a model that recites greedily could not be right about two.
    """
    tested = {record.question for record in held_out(data)}
    if not domain.records:
        everything = dolly(data) + oasst(data)
        return [record for record in everything if record.question not in tested]
    plain = [record for record in dolly(data) if _is_plain(record, domain.characters)]
    random.Random(seed).shuffle(plain)
    plain.sort(key=lambda record: not _FIRST.search(record.instruction))
    best: dict[str, Record] = {}
    for record in sorted(plain[: domain.records], key=lambda record: len(record.response)):
        if record.question not in tested:
            best[record.question] = record
    answers = {record.instruction: record.response for record in best.values()}
    again = [Record(a, "", answers[q]) for a, q in _ALIASES.items() if q in answers]
    return list(best.values()) + again


def training_records(data: Path) -> list[Record]:
    """Dolly's records to train on: no held-out record, and no question that one of those asks."""
    tested = {record.question for record in held_out(data)}
    return [record for record in dolly(data) if record.question not in tested]


def unseen(data: Path, seen: list[Record], count: int, seed: int) -> list[Record]:
    """Up to `count` short-asked records whose questions neither `seen` nor the held-out ask."""
    known = {record.question for record in seen + held_out(data)}
    rest = [
        record
        for record in dolly(data) + oasst(data)
        if 0 < len(record.instruction) < 200
        and len(record.context) < 1000
        and record.question not in known
    ]
    random.Random(seed).shuffle(rest)
    return rest[:count]


def prose(data: Path) -> Iterator[str]:
    """Pre-training documents: encyclopaedia, children's books, and a dictionary's definitions."""
    for name, template in _PROSE.items():
        for row in _rows(data, name):
            yield template.format(**row)


def _record(row: dict[str, Any]) -> Record:
    context = row.get("context", "").strip()
    return Record(row["instruction"].strip(), context, row["response"].strip())


def _is_held_out(row: dict[str, Any]) -> bool:
    return int(row["id"]) % 30 == 7


def _is_plain(record: Record, characters: tuple[int, int]) -> bool:
    text = record.response
    return (
        not record.context
        and 10 <= len(record.instruction) <= 120
        and characters[0] <= len(text) <= characters[1]
        and text[-1] in ".!?"
        and _PLAIN.fullmatch(record.instruction + text) is not None
    )


def _rows(data: Path, name: str) -> Iterator[dict[str, Any]]:
    """The rows of an archive.

    Raises:
        UserError: it is absent, truncated or damaged, or a line lacks a field.
    """
    path = data / name
    number = 0
    if not path.is_file():
        raise UserError("data", str(path), "is not there; name the folder that has it with --data")
    try:
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                number += 1
                row = json.loads(line)
                if any(field not in row for field in _FIELDS[name]):
                    raise KeyError
                yield row
    except (lzma.LZMAError, EOFError, UnicodeDecodeError):
        raise UserError("data", str(path), "is truncated or damaged; restore it") from None
    except (ValueError, KeyError, TypeError):
        fields = ", ".join(_FIELDS[name])
        raise UserError("data", f"{name}, line {number}", f"must be JSON with {fields}") from None
