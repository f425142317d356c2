"""The same requests, answered under several conditions, in an order that turns.

Every condition answers a request before the next request is answered, and each time another one is
the first, so that a slowdown of the machine does not affect one condition more than the others.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain, product
from typing import TYPE_CHECKING, Any, TypeVar

from lab.result import Result, Row
from pipeline.request import Request

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.decoding.race import Mode
    from pipeline.dolly import Dolly
    from pipeline.trace.record import Lane

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Condition:
    """A way to answer a request.

    Attributes:
        name: unique in its study.
        dolly: the pair.
        mode: one lane.
        changes: fields of the request that it replaces.
    """

    name: str
    dolly: Dolly
    mode: Mode = "speculative"
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer under one condition. A rate is None where nothing was counted.

    Attributes:
        request: its index among the requests.
        lane: its record.
    """

    condition: str
    request: int
    lane: Lane

    @property
    def seconds_per_token(self) -> float | None:
        return self.lane.seconds_per_token

    @property
    def tokens(self) -> list[int]:
        return [token.id for token in self.lane.tokens]


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers so far.

    Attributes:
        conditions: names of those that are compared.
        planned: the number of answers of the whole study.
        answers: in the order in which they were measured.
    """

    conditions: tuple[str, ...]
    planned: int
    answers: tuple[Answer, ...] = ()

    def of(self, condition: str, requests: Collection[int] | None = None) -> list[Answer]:
        """The answers under that condition to these requests; None for all."""
        return [
            answer
            for answer in self.answers
            if answer.condition == condition and (requests is None or answer.request in requests)
        ]

    def seconds_per_token(
        self, condition: str, requests: Collection[int] | None = None
    ) -> float | None:
        """The median of each request's answers, averaged over the requests; None before any."""
        times = self._times(condition, requests)
        return statistics.mean(map(statistics.median, times)) if times else None

    def extremes(self, condition: str) -> tuple[float, float]:
        """Seconds per token of the fastest and of the slowest answer under that condition, which
        must have been measured.
        """
        times = [*chain.from_iterable(self._times(condition, None))]
        return min(times), max(times)

    def speedup(
        self, condition: str, over: str, requests: Collection[int] | None = None
    ) -> float | None:
        """The time of a token under the condition `over`, divided by that under `condition`; None
        before both are measured.
        """
        slow, fast = (self.seconds_per_token(name, requests) for name in (over, condition))
        return slow / fast if slow and fast else None

    def acceptance_rate(
        self, condition: str, requests: Collection[int] | None = None
    ) -> float | None:
        """Accepted of tested tokens, of all answers together; None if none was tested."""
        lanes = [answer.lane for answer in self.of(condition, requests)]
        tested = sum(lane.tested for lane in lanes)
        return sum(lane.accepted for lane in lanes) / tested if tested else None

    def tests_at(
        self, condition: str, place: int, requests: Collection[int] | None = None
    ) -> tuple[int, int]:
        """How many tokens were tested at that place of a draft, from 1 on, and how many of them
        accepted.
        """
        steps = [step for answer in self.of(condition, requests) for step in answer.lane.steps]
        accepted = sum(step.accepted >= place for step in steps)
        return sum(step.tested >= place for step in steps), accepted

    def block_efficiency(
        self, condition: str, requests: Collection[int] | None = None
    ) -> float | None:
        """Tokens per forward pass of the target, of all answers together; None before any."""
        lanes = [answer.lane for answer in self.of(condition, requests)]
        passes = sum(len(lane.steps) for lane in lanes)
        return sum(len(lane.tokens) for lane in lanes) / passes if passes else None

    def identical(
        self, condition: str, other: str, requests: Collection[int] | None = None
    ) -> float | None:
        """The share of the requests whose answers under both conditions all have the same tokens;
        None before both are measured.
        """
        both = self.of(condition, requests), self.of(other, requests)
        if not all(both):
            return None
        texts: dict[int, set[tuple[int, ...]]] = {}
        for answer in chain(*both):
            texts.setdefault(answer.request, set()).add(tuple(answer.tokens))
        return statistics.mean(len(each) == 1 for each in texts.values())

    def _times(self, condition: str, requests: Collection[int] | None) -> list[list[float]]:
        """Seconds per token of the answers, grouped by request."""
        times: dict[int, list[float]] = {}
        for answer in self.of(condition, requests):
            if (seconds := answer.seconds_per_token) is not None:
                times.setdefault(answer.request, []).append(seconds)
        return [*times.values()]


def answered(
    conditions: Sequence[Condition], requests: Sequence[Request], repeats: int
) -> Generator[Answers, None, None]:
    """Answers the requests under every condition; yields the answers so far after every event.
    Closing it cancels the current answer.

    Raises:
        UserError: a prompt does not fit into the context.
    """
    names = tuple(condition.name for condition in conditions)
    result = Answers(names, planned=repeats * len(conditions) * len(requests))
    yield result
    shift = max(1, len(conditions) // repeats)
    for repeat, (place, request) in product(range(repeats), enumerate(requests)):
        for condition in turned(conditions, shift * (repeat + place)):
            run = condition.dolly.start(replace(request, **condition.changes), condition.mode)
            with closing(iter(run)) as updates:
                for _ in updates:
                    yield result
            (lane,) = run.trace().lanes.values()
            answer = Answer(condition.name, place, _without_candidates(lane))
            result = replace(result, answers=(*result.answers, answer))
            yield result


def seconds_of(lane: Lane, count: int) -> float:
    """Seconds of decoding the first `count` tokens, prefill apart. Of the round that emits the
    last of them, the share of its tokens that count.
    """
    left, seconds = count, 0.0
    for taken, emitted in zip(lane.undisturbed, lane.emitted, strict=True):
        if left:
            used = min(left, len(emitted))
            seconds += taken * used / len(emitted)
            left -= used
    return seconds


def turned(items: Sequence[_Item], turn: int) -> list[_Item]:
    """The items in their order, from another one on each turn."""
    first = turn % len(items)
    return [*items[first:], *items[:first]]


def tabulated(
    answers: Generator[Answers, None, None],
    rows: Callable[[Answers], Iterator[Row]],
    pair: Mapping[str, Any],
) -> Generator[Result, None, None]:
    """The results so far of a study that measures answers. The table is computed only when
    there is another answer.
    """
    result, latest = Result(pair=pair), None
    with closing(answers):
        for now in answers:
            if now is not latest:
                latest, table = now, tuple(rows(now))
                result = replace(result, rows=table, done=len(now.answers), planned=now.planned)
            yield result


def _without_candidates(lane: Lane) -> Lane:
    """The record without the most likely tokens at each position, which take most of its memory."""
    steps = [replace(step, target_top=(), draft_top=()) for step in lane.steps]
    return replace(lane, steps=tuple(steps))
