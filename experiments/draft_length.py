"""Measures the time per token for every draft length, on the same requests.

Every length answers each request equally often. Each repeat starts at another length, so that a
temporary slowdown of the machine does not affect one length more than the others.
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
    """One answer with one draft length. A rate is None where nothing was counted."""

    length: Length
    request: int  # its index among the requests
    seconds_per_token: float | None
    acceptance_rate: float | None
    block_efficiency: float | None


@dataclass(frozen=True, slots=True)
class Sweep:
    """The measurements so far.

    Attributes:
        created: the start time, ISO 8601; "" before the first answer.
        lengths: the lengths that are compared.
        planned: the number of answers of the whole sweep.
        answers: in the order in which they were measured.
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
        """By measured length: the median of each request's answers, averaged over the requests."""
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
        """The fastest length except "auto"."""
        return self._fastest(length for length in self.lengths if length != "auto")

    def extremes(self, length: Length) -> tuple[float, float]:
        """Seconds per token of the fastest and of the slowest answer with that length, which must
        have been measured.
        """
        times = [*chain.from_iterable(self._times(length))]
        return min(times), max(times)

    def speedup(self, length: Length) -> float | None:
        """Speedup over autoregressive decoding; None before both are measured."""
        times = self.seconds_per_token
        return times[0] / times[length] if {0, length} <= times.keys() else None

    def _fastest(self, lengths: Iterable[Length]) -> Length | None:
        times = self.seconds_per_token
        measured = (length for length in lengths if length in times)
        return min(measured, key=times.__getitem__, default=None)

    def _times(self, length: Length) -> list[list[float]]:
        """Seconds per token of the answers, grouped by request."""
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
    """Answers the requests with every length, whatever their own. Closing it cancels the current
    answer.

    Raises:
        UserError: a prompt does not fit into the context.
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
