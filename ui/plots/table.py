"""Tables of text, shown on the page and saved as CSV."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass

_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_FORMULA = re.compile(r"\s*[=+\-@]|[\t\r\n]")  # text that spreadsheets evaluate


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as they are shown; "" where there is no value."""

    columns: tuple[str, ...]
    rows: list[list[str]]

    def csv(self) -> str:
        """The table as CSV (RFC 4180). Text that a spreadsheet would evaluate as a formula gets a
        leading apostrophe.
        """
        file = io.StringIO()
        writer = csv.writer(file)
        writer.writerow(self.columns)
        writer.writerows([_harmless(cell) for cell in row] for row in self.rows)
        return file.getvalue()


def _harmless(cell: str) -> str:
    formula = _FORMULA.match(cell) and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if formula else cell
