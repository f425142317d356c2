"""A race that is run several times, since one alone says little on a shared machine."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass

from pipeline.engine import Engine
from pipeline.errors import UserError
from pipeline.request import Request
from pipeline.trace.metrics import median_interval, not_compared

TIMES = 10


@dataclass(frozen=True, slots=True)
class Repeated:
    """The races so far.

    Attributes:
        speedups: one of each.
        identical: how many had identical texts; None where texts are not claimed to agree.
    """

    speedups: tuple[float, ...]
    identical: int | None

    @property
    def complete(self) -> bool:
        return len(self.speedups) == TIMES

    @property
    def line(self) -> str:
        """Them in a sentence or two."""
        races = len(self.speedups)
        if races < 2:
            return f"{races} of {TIMES} races: {self.speedups[0]:.2f}×."
        low, middle, high = median_interval(self.speedups)
        least, most = min(self.speedups), max(self.speedups)
        line = (
            f"{races} of {TIMES} races: {middle:.2f}× at the median, 95 % interval {low:.2f} to "
            f"{high:.2f}, each between {least:.2f} and {most:.2f}."
        )
        if self.identical is None:
            return line
        return f"{line} Identical texts in {self.identical} of {races}."


def repeated(engine: Engine, request: Request) -> Generator[Repeated | None, None, None]:
    """Races the request, and yields all races after each. No race copies from an earlier one.

    Raises:
        UserError: the prompt does not fit, or the texts are too short to be compared.
    """
    speedups: list[float] = []
    identical: list[bool | None] = []
    while len(speedups) < TIMES:
        run = engine.start(request)
        with closing(iter(run)) as updates:
            for _ in updates:
                yield None
        trace = run.trace()
        if trace.speedup is None:
            raise UserError("races", not_compared(trace), "ask for a longer answer")
        speedups.append(trace.speedup)
        identical.append(trace.identical)
        same = None if None in identical else sum(map(bool, identical))
        yield Repeated(tuple(speedups), same)
