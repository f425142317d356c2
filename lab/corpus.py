"""The texts: reading the archives, the held-out rule, and which records are trained on.

Knows files and text; no tokens, no models.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import UserError

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

_DOLLY, _OASST, SPEC_BENCH = "dolly15k.jsonl.xz", "oasst1_pairs.jsonl.xz", "spec_bench.jsonl.xz"
_FIELDS = {
    _DOLLY: ("id", "instruction", "context", "response"),
    _OASST: ("instruction", "response"),
    SPEC_BENCH: ("category", "turns"),
}


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
    return {int(row["id"]): _record(row) for row in rows(data, _DOLLY) if _is_held_out(row["id"])}


def dolly(data: Path) -> dict[int, Record]:
    """Dolly's other records by their ids, in the order of the file."""
    return {
        int(row["id"]): _record(row) for row in rows(data, _DOLLY) if not _is_held_out(row["id"])
    }


def oasst(data: Path) -> list[Record]:
    """OpenAssistant's pairs."""
    return [_record(row) for row in rows(data, _OASST)]


def training_records(data: Path) -> list[Record]:
    """Dolly's records to train on: no held-out record, and no question that one of those asks."""
    return list(training_records_by_id(data).values())


def training_records_by_id(data: Path) -> dict[int, Record]:
    """As `training_records`, by Dolly's own ids."""
    tested = {record.question for record in held_out(data)}
    return {number: each for number, each in dolly(data).items() if each.question not in tested}


def own_instructions(path: Path, held_out: bool = False) -> list[Record]:
    """Those of a user's file: a line of JSON each, {"instruction", "context"}, or plain text. One
    line of thirty is held out.

    Args:
        held_out: returns these, and else all others.

    Raises:
        UserError: the file is not there, is empty, or a line is damaged.
    """
    records = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):  # the error names it
            if line.strip():
                row = json.loads(line) if line.startswith("{") else {"instruction": line}
                if _is_held_out(number) == held_out:
                    records.append(_record({"response": ""} | row))
    except (OSError, UnicodeDecodeError):
        raise UserError("instructions", str(path), "is not there, or is no text in UTF-8") from None
    except (ValueError, KeyError, AttributeError):
        where, remedy = f"{path.name}, line {number}", 'must be JSON with "instruction", or text'
        raise UserError("instructions", where, remedy) from None
    if not (records or held_out):
        raise UserError("instructions", str(path), "is empty; write an instruction a line")
    return records


def _record(row: dict[str, Any]) -> Record:
    context = row.get("context", "").strip()
    return Record(row["instruction"].strip(), context, row["response"].strip())


def _is_held_out(number: int | str) -> bool:
    return int(number) % 30 == 7


def rows(data: Path, name: str) -> Iterator[dict[str, Any]]:
    """The rows of an archive.

    Raises:
        UserError: it is absent, truncated or damaged, or a line lacks a field.
    """
    path, number = data / name, 0
    if not path.is_file():
        raise UserError("data", str(path), "is not there; name the folder that has it with --data")
    try:
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):  # noqa: B007  # the error names it
                row = json.loads(line)
                yield {field: row[field] for field in _FIELDS[name]}
    except (lzma.LZMAError, EOFError, UnicodeDecodeError):
        raise UserError("data", str(path), "is truncated or damaged; restore it") from None
    except (ValueError, KeyError, TypeError):
        fields = ", ".join(_FIELDS[name])
        raise UserError("data", f"{name}, line {number}", f"must be JSON with {fields}") from None
