"""Output of a benchmark: a printed table and a JSON file."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline.environment import environment

RESULTS = Path(__file__).with_name("results")


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with its quartiles, in the unit of the samples."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """The spread of at least two samples."""
        low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
        return cls(median, low, high, len(samples))

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints a table; the first column is aligned left, the others right."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        first, *others = zip(row, widths, strict=True)
        print(first[0].ljust(first[1]), *(text.rjust(width) for text, width in others), sep="  ")


def save(benchmark: str, **results: Any) -> None:
    """Writes the results with their date, machine and versions to `benchmarks/results/`."""
    path = RESULTS / f"{benchmark}.json"
    about = {"benchmark": benchmark, "created": datetime.now(UTC).isoformat(timespec="seconds")}
    whole = about | {"environment": environment()} | results
    path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    print(f"\n{path}")
