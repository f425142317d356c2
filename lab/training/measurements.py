"""Measurements of many records, kept one by one, so that an interruption loses at most one.

Knows files and plain JSON rows; not what is measured.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from pipeline.errors import UserError

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Series:
    """One measurement, made of each of several records.

    Attributes:
        name: what it is, for people.
        depends_on: all that its rows depend on besides the record, as text.
        ids: of the records.
        measure: makes the row of a record; plain JSON.
    """

    name: str
    depends_on: str
    ids: Sequence[int]
    measure: Callable[[int], Row]

    def key(self, record: int) -> tuple[str, int]:
        """The same wherever the same is measured: two series may share rows."""
        return hashlib.blake2b(self.depends_on.encode(), digest_size=8).hexdigest(), record


class Measurements:
    """The rows in a file, one a line. Rows of other weights or settings stay in it, unused.

    Raises:
        UserError: a line is damaged, or the disk is full. A last line that an interruption cut
            short is taken off.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[tuple[str, int], Row] = {}
        if not path.is_file():
            return
        whole, _, cut = path.read_text(encoding="utf-8").rpartition("\n")
        if cut:
            path.write_text(f"{whole}\n" if whole else "", encoding="utf-8")
        for number, line in enumerate(whole.split("\n") if whole else [], start=1):
            try:
                key, record, row = json.loads(line)
                self._rows[key, record] = dict(row)
            except (ValueError, TypeError):
                remedy = "is damaged; delete the line to measure it again"
                raise UserError("measurements", f"{path.name}, line {number}", remedy) from None

    def complete(self, series: Series) -> None:
        """Measures the records of `series` that have no row yet."""
        missing = [record for record in series.ids if series.key(record) not in self._rows]
        for record in tqdm(missing, desc=series.name, disable=not missing):
            self._add(series.key(record), series.measure(record))

    def rows(self, series: Series) -> list[Row] | None:
        """One row for each record, in the order of `series`; None if not all were measured."""
        found = [self._rows.get(series.key(record)) for record in series.ids]
        rows = [row for row in found if row is not None]
        return rows if len(rows) == len(found) else None

    def _add(self, key: tuple[str, int], row: Row) -> None:
        try:
            with self._path.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps([*key, row]) + "\n")
        except OSError as error:
            remedy = f"could not be written ({error.strerror}); what was measured before is kept"
            raise UserError("measurements", self._path.name, remedy) from None
        self._rows[key] = row
