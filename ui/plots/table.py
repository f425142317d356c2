"""A table of text, to show and to save."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass

_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_FORMULA = re.compile(r"\s*[=+\-@]|[\t\r\n]")  # the beginnings that spreadsheets evaluate


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as they are shown; "" where there is no value."""

    columns: tuple[str, ...]
    rows: list[list[str]]

    def csv(self) -> str:
        """For spreadsheets (RFC 4180). Text that one would evaluate as a formula gets an apostrophe
        in front.
        """
        file = io.StringIO()
        writer = csv.writer(file)
        writer.writerow(self.columns)
        writer.writerows([_harmless(cell) for cell in row] for row in self.rows)
        return file.getvalue()


def _harmless(cell: str) -> str:
    formula = _FORMULA.match(cell) and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if formula else cell
