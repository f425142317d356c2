"""The same requests, answered under several conditions, in an order that turns.

Every condition answers a request before the next request is answered, and each time another one is
the first, so that a slowdown of the machine does not affect one condition more than the others.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import chain, product
from typing import TYPE_CHECKING, Any, TypeVar

from lab.result import Result, Row
from pipeline.request import Request

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.decoding.race import Mode
    from pipeline.dolly import Dolly
    from pipeline.trace.cost import Cost
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


def both_modes(
    name: str, dolly: Dolly, changes: Mapping[str, Any] | None = None
) -> list[Condition]:
    """The conditions “NAME autoregressive” and “NAME speculative”."""
    modes: tuple[Mode, Mode] = ("autoregressive", "speculative")
    return [Condition(f"{name} {mode}", dolly, mode, changes or {}) for mode in modes]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer under one condition.

    Attributes:
        request: its index among the requests.
        lane: its record.
        cost: of a token.
    """

    condition: str
    request: int
    lane: Lane
    cost: Cost


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers so far. What is computed of them is None before it is measured.

    Attributes:
        conditions: names of those that are compared.
        planned: the number of answers of the whole study.
        answers: in the order in which they were measured.
    """

    conditions: tuple[str, ...]
    planned: int
    answers: tuple[Answer, ...] = ()

    def within(self, requests: Collection[int]) -> Answers:
        """Those to these requests."""
        kept = (answer for answer in self.answers if answer.request in requests)
        return replace(self, answers=tuple(kept))

    def of(self, condition: str) -> list[Answer]:
        return [answer for answer in self.answers if answer.condition == condition]

    def lanes(self, condition: str) -> list[Lane]:
        return [answer.lane for answer in self.of(condition)]

    def seconds_per_token(self, condition: str) -> float | None:
        """The median of each request's answers, averaged over the requests."""
        times = self._times(condition)
        return statistics.mean(map(statistics.median, times)) if times else None

    def extremes(self, condition: str) -> tuple[float, float]:
        """Seconds per token of the fastest and of the slowest answer under a condition that is
        measured.
        """
        times = [*chain.from_iterable(self._times(condition))]
        return min(times), max(times)

    def speedup(self, condition: str, over: str) -> float | None:
        """The time of a token under the condition `over`, divided by that under `condition`."""
        slow, fast = self.seconds_per_token(over), self.seconds_per_token(condition)
        return slow / fast if slow and fast else None

    def cells(self, condition: str, over: str) -> dict[str, Any]:
        """Cells that many tables have: milliseconds per token, the speedup over another condition,
        accepted of tested tokens, and tokens per pass; none before both are measured.
        """
        seconds, speedup = self.seconds_per_token(condition), self.speedup(condition, over)
        if seconds is None or speedup is None:
            return {}
        return {
            "ms": 1e3 * seconds,
            "speedup": speedup,
            "acceptance": self.acceptance_rate(condition),
            "block": self.block_efficiency(condition),
        }

    def acceptance_rate(self, condition: str) -> float | None:
        """Accepted of tested tokens, of all answers together."""
        lanes = self.lanes(condition)
        tested = sum(lane.tested for lane in lanes)
        return sum(lane.accepted for lane in lanes) / tested if tested else None

    def block_efficiency(self, condition: str) -> float | None:
        """Tokens per forward pass of the target, of all answers together."""
        lanes = self.lanes(condition)
        passes = sum(len(lane.steps) for lane in lanes)
        return sum(len(lane.tokens) for lane in lanes) / passes if passes else None

    def identical(self, condition: str, other: str) -> float | None:
        """The share of the requests whose answers under both conditions all have the same
        tokens.
        """
        both = self.of(condition), self.of(other)
        if not all(both):
            return None
        texts: dict[int, set[tuple[int, ...]]] = {}
        for answer in chain(*both):
            tokens = tuple(token.id for token in answer.lane.tokens)
            texts.setdefault(answer.request, set()).add(tokens)
        return statistics.mean(len(each) == 1 for each in texts.values())

    def _times(self, condition: str) -> list[list[float]]:
        """Seconds per token of the answers, grouped by request."""
        times: dict[int, list[float]] = {}
        for answer in self.of(condition):
            if (seconds := answer.lane.seconds_per_token) is not None:
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
            trace = run.trace()
            (lane,), (cost,) = trace.lanes.values(), trace.costs.values()
            answer = Answer(condition.name, place, _without_candidates(lane), cost)
            result = replace(result, answers=(*result.answers, answer))
            yield result


def endless(dolly: Dolly) -> Dolly:
    """The same models, whose answers do not end before their budget is used up."""
    other = copy(dolly)
    other.tokenizer = copy(dolly.tokenizer)
    other.tokenizer.end_ids = frozenset()
    return other


def tests_at(lanes: Iterable[Lane], place: int) -> tuple[int, int]:
    """How many tokens were tested at that place of a draft, from 1 on, and how many of them
    accepted.
    """
    steps = [step for lane in lanes for step in lane.steps]
    return sum(step.tested >= place for step in steps), sum(s.accepted >= place for s in steps)


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
    **figures: Any,
) -> Generator[Result, None, None]:
    """The results so far of a study that measures answers. The table is computed only when
    there is another answer.
    """
    result, latest = Result(pair=pair, figures=figures), None
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
