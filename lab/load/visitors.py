"""Many visitors at once: each gets the answer to its own question, in the order of arrival.

They come one after the other, faster than races end, until the queue is full and beyond. The first
ninth close their tabs once all have come. Of the others who get a place, a ninth leaves in its race
and a ninth from the queue, while others still come.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Literal

from lab.load.parts import Finding
from lab.load.server import ready
from lab.load.visitor import Race, Visitor
from lab.prompts import KINDS
from pipeline.dolly import Dolly
from pipeline.request import Request
from pipeline.trace.record import Trace

Outcome = Literal[
    "answered", "left its race", "left the queue", "closed its tab", "refused", "lost"
]
Leaving = Literal["racing", "waiting", "closing"]

_LENGTHS = (8, 24, 64, 128)  # new tokens
_SHARE = 9  # one of so many leaves in its race, one from the queue, and one closes its tab
_ROLES: Mapping[int, Leaving] = {4: "racing", 8: "waiting"}  # of those who get a place, by number
_PATIENT = 0.2  # seconds in the queue before one who leaves it does: a few more come meanwhile
_PERIOD = 0.02  # seconds between two looks at all answers
_EXACT = 1e-6  # seconds; times of one look differ by rounding
_LATEST = 600.0  # seconds for all answers


@dataclass(slots=True)
class Visit:
    """What became of a visitor.

    Attributes:
        number: in the order of arrival, from 0.
        arrived_s: when it came, in seconds of the run.
        rank: its place in the queue when it came; 0 is the next, None is none.
        first_token_s: seconds from its arrival to the look that saw its first token, at most
            `_PERIOD` and a look later; None if it saw none.
        trace: of one who was answered.
        line: the error, of one who was refused or lost.
    """

    number: int
    request: Request
    outcome: Outcome
    arrived_s: float = 0.0
    rank: int | None = None
    first_token_s: float | None = None
    trace: Trace | None = None
    line: str = ""


class Guest:
    """A visitor who may leave, and the visit. One thread lets it arrive, another looks."""

    def __init__(self, visitor: Visitor, request: Request) -> None:
        self._visitor = visitor
        self.visit = Visit(-1, request, "lost")
        self._leaving: Leaving | None = None
        self._race: Race | None = None

    def arrive(self, number: int, leaving: Leaving | None = None) -> bool:
        """Asks; returns whether the server has queued it, or begun.

        Args:
            leaving: when it presses Stop, or that it closes its tab; None if it stays.
        """
        self._leaving = leaving
        if leaving == "racing":  # long enough to be left
            self.visit.request = replace(self.visit.request, max_new_tokens=max(_LENGTHS))
        self.visit.number, self.visit.arrived_s = number, time.perf_counter()
        race = self._visitor.race(self.visit.request)
        self.visit.rank = race.rank
        if leaving != "closing":
            self._race = race  # from now on, others look
        return race.rank is not None or not race.ended

    def leave(self) -> None:
        """Closes its tab, if that is its role."""
        if self._leaving == "closing":
            self.visit.outcome = "closed its tab"
            self._visitor.close()

    def look(self, now: float) -> bool:
        """Notes what has come; returns whether that was all.

        Args:
            now: when this look at all visitors began, in seconds of the run.
        """
        if self._race is None or now < self.visit.arrived_s:  # the next look is in time for it
            return self.visit.outcome == "closed its tab"
        waited = now - self.visit.arrived_s
        if self.visit.first_token_s is None and self._race.begun:
            self.visit.first_token_s = waited
        racing = self.visit.first_token_s is not None
        if self._race.ended:
            self._end(self._race)
            return True
        if racing and self._leaving == "racing":
            self.visit.outcome = "left its race"
        elif not racing and self._leaving == "waiting" and waited > _PATIENT:
            self.visit.outcome = "left the queue"
        else:
            return False
        self._race.stop()
        return True

    def _end(self, race: Race) -> None:
        try:
            self.visit.trace = race.trace()
            self.visit.outcome = "answered"
        except Exception as error:
            self.visit.line = str(error)
            self.visit.outcome = "refused" if "Queue is full" in self.visit.line else "lost"


def questions(count: int, seed: int) -> list[Request]:
    """Requests of mixed lengths, no two of them alike."""
    chosen = random.Random(seed)
    prompts = [prompt for prompts in KINDS.values() for prompt in prompts]
    return [
        Request(
            f"{instruction} (question {number})",
            context,
            max_new_tokens=chosen.choice(_LENGTHS),
        )
        for number, (instruction, context) in enumerate(chosen.choices(prompts, k=count))
    ]


def come(url: str, count: int, seed: int = 0) -> list[Visit]:
    """What becomes of so many visitors of the server, in the order of arrival."""
    with ExitStack() as stack:
        guests = [
            Guest(stack.enter_context(closing(Visitor(url))), request)
            for request in questions(count, seed)
        ]
        arriving = stack.enter_context(ThreadPoolExecutor(1)).submit(_arrive, guests)
        waiting, deadline = guests, time.monotonic() + _LATEST
        while waiting and time.monotonic() < deadline:
            now = time.perf_counter()
            waiting = [guest for guest in waiting if not guest.look(now)]
            if arriving.done():
                arriving.result()
            time.sleep(_PERIOD)
        arriving.result()
    return [guest.visit for guest in guests]


def _arrive(guests: Sequence[Guest]) -> None:
    """One after the other. Who gets a place is counted, and some of them leave."""
    closing_tabs, admitted = len(guests) // _SHARE, 0
    for number, guest in enumerate(guests):
        if number < closing_tabs:
            guest.arrive(number, "closing")
        else:
            admitted += guest.arrive(number, _ROLES.get(admitted % _SHARE))
    for guest in guests:
        guest.leave()


def failures(visits: Sequence[Visit], texts: Mapping[Request, str], places: int) -> Iterator[str]:
    """A line for each defect.

    Args:
        visits: in the order of arrival.
        texts: the greedy text of each request.
        places: in the queue.
    """
    for visit in visits:
        about = f"visitor {visit.number} ({visit.request.instruction})"
        if visit.outcome == "lost":
            yield f"{about} was lost: {visit.line or 'no answer'}"
        if visit.outcome == "refused" and (not visit.line or "\n" in visit.line):
            yield f"{about} was not refused in one line: {visit.line!r}"
        if visit.trace:
            asked = visit.trace.request["instruction"]
            if asked != visit.request.instruction or any(
                lane.text != texts[visit.request] for lane in visit.trace.lanes.values()
            ):
                yield f"{about} got another answer: {asked}"
    admitted = [visit for visit in visits if visit.outcome != "refused"]
    if len(admitted) < min(len(visits), 1 + places):
        yield f"only {len(admitted)} were admitted, with {places} places in the queue"
    racing = [visit for visit in admitted if visit.first_token_s is not None]
    for earlier, later in pairwise(racing):
        if _began(later) < _began(earlier) - _EXACT:
            yield f"visitor {later.number} raced before visitor {earlier.number}"


def _began(visit: Visit) -> float:
    """When the first token was seen, in seconds of the run: the trace has its time to the second
    only. It is the same for two that one look at all visitors saw, which are in no order.
    """
    return visit.arrived_s + (visit.first_token_s or 0.0)


def delays(visits: Sequence[Visit]) -> dict[str, float]:
    """The median seconds from arrival to the first token, by the place in the queue at arrival."""
    by_rank: dict[int, list[float]] = {}
    for visit in visits:
        if visit.rank is not None and visit.first_token_s is not None:
            by_rank.setdefault(visit.rank, []).append(visit.first_token_s)
    return {str(rank): round(median(each), 3) for rank, each in sorted(by_rank.items())}


def measure(work: Path, pair: str, count: int, places: int) -> Finding:
    """Lets so many visitors come to a server whose queue has so many places.

    Args:
        work: an empty folder.
        pair: a name of the registry, or a folder.
    """
    with ready(work, pair, "--queue-size", str(places)) as server:
        visits = come(server.url, count)
        found = [f"the server's log: {line}" for line in server.errors.splitlines()]
    answered = {visit.request for visit in visits if visit.outcome == "answered"}
    dolly = Dolly(pair)  # the greedy text of each, by the target alone in this process
    texts = {
        each: dolly.start(each, "autoregressive").finish().lanes["autoregressive"].text
        for each in answered
    }
    figures = {
        "visitors": count,
        "places": places,
        "outcomes": dict(Counter(visit.outcome for visit in visits)),
        "median_first_token_s_by_rank": delays(visits),
    }
    return Finding(figures, (*found, *failures(visits, texts, places)))
