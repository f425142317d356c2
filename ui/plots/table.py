"""A table of text, to be shown and to be kept."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass

_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_FORMULA = re.compile(r"\s*[=+\-@]|[\t\r\n]")  # what spreadsheets take for one begins so


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as they are shown; "" where there is no figure."""

    columns: tuple[str, ...]
    rows: list[list[str]]

    def csv(self) -> str:
        """As a spreadsheet reads it (RFC 4180). Text that it would take for a formula, and run,
        gets an apostrophe in front.
        """
        file = io.StringIO()
        writer = csv.writer(file)
        writer.writerow(self.columns)
        writer.writerows([_harmless(cell) for cell in row] for row in self.rows)
        return file.getvalue()


def _harmless(cell: str) -> str:
    formula = _FORMULA.match(cell) and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if formula else cell
