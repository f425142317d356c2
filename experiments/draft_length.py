"""How many tokens should be drafted? The same requests are answered with every draft length.

Every length answers every request as often as the others, and each repeat begins with another
length: what slows the machine for a while slows no length more than the others.
"""

from __future__ import annotations

import statistics
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Literal

from pipeline.request import DRAFT_LENGTHS, Request

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.decoding.race import Mode
    from pipeline.dolly import Dolly

Length = int | Literal["auto"]

LENGTHS: tuple[Length, ...] = (*DRAFT_LENGTHS, "auto")
REPEATS = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """One request, answered with one draft length. Rates are None where nothing was counted."""

    length: Length
    request: int  # its place among the requests
    seconds_per_token: float | None
    acceptance_rate: float | None
    block_efficiency: float | None


@dataclass(frozen=True, slots=True)
class Sweep:
    """What has been measured so far.

    Attributes:
        created: when it began, ISO 8601; "" before the first answer.
        lengths: those that are compared.
        planned: answers there will be in all.
        answers: in the order in which they were made.
    """

    lengths: tuple[Length, ...]
    planned: int
    created: str = ""
    answers: tuple[Answer, ...] = ()

    @property
    def complete(self) -> bool:
        return len(self.answers) == self.planned

    def of(self, length: Length) -> list[Answer]:
        """The answers with that length."""
        return [answer for answer in self.answers if answer.length == length]

    @property
    def seconds_per_token(self) -> dict[Length, float]:
        """By length, as far as measured: the mean over the requests of the median of each."""
        return {
            length: statistics.mean(map(statistics.median, times))
            for length in self.lengths
            if (times := self._times(length))
        }

    @property
    def best(self) -> Length | None:
        """The fastest length; None before anything is measured."""
        return self._fastest(self.lengths)

    @property
    def best_fixed(self) -> Length | None:
        """The fastest length but "auto"."""
        return self._fastest(length for length in self.lengths if length != "auto")

    def extremes(self, length: Length) -> tuple[float, float]:
        """Seconds a token of the fastest and of the slowest answer with that length, of which
        there must be one.
        """
        times = [*chain.from_iterable(self._times(length))]
        return min(times), max(times)

    def speedup(self, length: Length) -> float | None:
        """Over autoregression; None before both are measured."""
        times = self.seconds_per_token
        return times[0] / times[length] if {0, length} <= times.keys() else None

    def _fastest(self, lengths: Iterable[Length]) -> Length | None:
        times = self.seconds_per_token
        measured = (length for length in lengths if length in times)
        return min(measured, key=times.__getitem__, default=None)

    def _times(self, length: Length) -> list[list[float]]:
        """Seconds a token of each request's answers."""
        times: dict[int, list[float]] = {}
        for answer in self.of(length):
            if answer.seconds_per_token is not None:
                times.setdefault(answer.request, []).append(answer.seconds_per_token)
        return list(times.values())


def sweep(
    dolly: Dolly,
    requests: Sequence[Request],
    repeats: int = REPEATS,
    lengths: Sequence[Length] = LENGTHS,
) -> Generator[Sweep, None, None]:
    """Answers the requests, whose own draft lengths do not matter. Closing it ends the answer under
    way.

    Raises:
        UserError: a prompt does not fit.
    """
    result = Sweep(tuple(lengths), planned=repeats * len(lengths) * len(requests))
    yield result
    for repeat in range(repeats):
        first = max(1, len(lengths) // repeats) * repeat % len(lengths)
        for length in (*lengths[first:], *lengths[:first]):
            for place, request in enumerate(requests):
                mode: Mode = "speculative" if length else "autoregressive"
                run = dolly.start(replace(request, draft_length=length or 1), mode)
                with closing(iter(run)) as updates:
                    for _ in updates:
                        yield result
                trace = run.trace()
                (lane,) = trace.lanes.values()
                rates = (lane.seconds_per_token, lane.acceptance_rate, lane.block_efficiency)
                answers = (*result.answers, Answer(length, place, *rates))
                result = replace(result, created=result.created or trace.created, answers=answers)
                yield result
