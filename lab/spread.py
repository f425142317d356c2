"""The spread of repeated measurements."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from lab.result import Column


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

    def cells(self, name: str) -> dict[str, float]:
        """Of the column of that name, and of its `quartiles`."""
        return {name: self.median, f"{name}_low": self.low, f"{name}_high": self.high}


def quartiles(name: str, unit: str) -> tuple[Column, Column]:
    """The columns of a median's quartiles."""
    low = Column(f"{name}_low", "Lower quartile", unit)
    return low, Column(f"{name}_high", "Upper quartile", unit)
