"""Many visitors at once: each gets the answer to its own question, in the order of arrival.

They come one after the other, faster than races end, until the queue is full and beyond. A third of
them leaves: some in their race, some from the queue, and some because their program is killed.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from benchmarks.loads.finding import Finding
from experiments.prompts import KINDS
from pipeline.dolly import Dolly
from pipeline.request import Request
from pipeline.trace.record import Trace
from serving.server import PATIENCE, Server
from serving.visitor import Race, Visitor

Outcome = Literal["answered", "left", "refused", "lost"]
Leaving = Literal["racing", "waiting"]

_LENGTHS = (8, 24, 64, 128)  # new tokens
_SHARE = 9  # one of so many leaves in its race, one from the queue, and one is killed
_PERIOD = 0.02  # seconds between two looks at all answers
_LATEST = 600.0  # seconds for all answers
_CONNECTING = 4  # clients that connect at the same time


@dataclass(slots=True)
class Visit:
    """What became of a visitor.

    Attributes:
        place: in the order of arrival, from 0.
        arrived_s: when it came, in seconds of the run.
        first_token_s: seconds from its arrival; None if it saw none.
        trace: of one who was answered.
        line: the error, of one who was refused or lost.
    """

    place: int
    request: Request
    outcome: Outcome
    arrived_s: float = 0.0
    first_token_s: float | None = None
    trace: Trace | None = None
    line: str = ""


class _Visitor:
    """One that may leave.

    Args:
        url: of the server.
        leaving: when it presses Stop; None if it stays.
    """

    def __init__(self, url: str, request: Request, leaving: Leaving | None = None) -> None:
        self._visitor = Visitor(url)
        self.request, self.leaving = request, leaving
        self.visit = Visit(-1, request, "lost")
        self._race: Race | None = None

    def arrive(self, place: int) -> None:
        """Asks; returns once the server has queued or refused it."""
        self.visit.place, self.visit.arrived_s = place, time.perf_counter()
        self._race = self._visitor.race(self.request)

    def look(self) -> bool:
        """Notes what has come; returns whether that was all."""
        assert self._race is not None
        if self.visit.first_token_s is None and self._race.begun:
            self.visit.first_token_s = time.perf_counter() - self.visit.arrived_s
            if self.leaving == "racing":
                self.leave()
        if self.visit.outcome == "left":
            return True
        if not self._race.ended:
            return False
        try:
            self.visit.trace = self._race.trace()
            self.visit.outcome = "answered"
        except Exception as error:
            self.visit.line = str(error)
            self.visit.outcome = "refused" if "Queue is full" in self.visit.line else "lost"
        return True

    def leave(self) -> None:
        """Presses Stop, unless it has its answer."""
        assert self._race is not None
        if not self._race.ended:
            self._race.stop()
            self.visit.outcome = "left"

    def close(self) -> None:
        self._visitor.close()


def _ask_and_wait(url: str, requests: Sequence[Request], connected: Any, queued: Any) -> None:
    """Runs in a process that is killed. Passes the first barrier when it could ask, and the second
    when it has.
    """
    visitors = [Visitor(url) for _ in requests]
    connected.wait()
    for visitor, request in zip(visitors, requests, strict=True):
        visitor.race(request)
    queued.wait()
    time.sleep(_LATEST)


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
    requests = questions(count, seed)
    killed, others = requests[: count // _SHARE], requests[count // _SHARE :]
    leaving: list[Leaving | None] = [None] * _SHARE
    leaving[_SHARE // 2], leaving[-1] = "racing", "waiting"
    asking = [(each, leaving[number % _SHARE]) for number, each in enumerate(others)]
    with ThreadPoolExecutor(_CONNECTING) as pool, ExitStack() as stack:
        visitors = list(pool.map(lambda each: _Visitor(url, *each), asking))
        for visitor in visitors:
            stack.callback(visitor.close)
        with _doomed(url, killed):
            for place, visitor in enumerate(visitors, start=len(killed)):
                visitor.arrive(place)
            for visitor in visitors:
                if visitor.leaving == "waiting":
                    visitor.leave()
        waiting, deadline = visitors, time.monotonic() + _LATEST
        while waiting and time.monotonic() < deadline:
            waiting = [visitor for visitor in waiting if not visitor.look()]
            time.sleep(_PERIOD)
    gone = [Visit(place, each, "left") for place, each in enumerate(killed)]
    return gone + [visitor.visit for visitor in visitors]


@contextmanager
def _doomed(url: str, requests: Sequence[Request]) -> Iterator[None]:
    """Within the context these requests wait; at its end, the program that asked is killed."""
    if not requests:
        yield
        return
    context = multiprocessing.get_context("spawn")
    barriers = context.Barrier(2, timeout=PATIENCE), context.Barrier(2, timeout=PATIENCE)
    process = context.Process(target=_ask_and_wait, args=(url, requests, *barriers))
    process.start()
    try:
        for barrier in barriers:
            barrier.wait()
        yield
    finally:
        process.kill()
        process.join()


def failures(visits: Sequence[Visit], texts: Mapping[Request, str], places: int) -> Iterator[str]:
    """A line for each defect.

    Args:
        visits: in the order of arrival.
        texts: the greedy text of each request.
        places: in the queue.
    """
    for visit in visits:
        about = f"visitor {visit.place} ({visit.request.instruction})"
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
        if _began(later) < _began(earlier):
            yield f"visitor {later.place} raced before visitor {earlier.place}"


def _began(visit: Visit) -> float:
    return visit.arrived_s + (visit.first_token_s or 0.0)


def measure(work: Path, pair: str, count: int, places: int) -> Finding:
    """Lets so many visitors come to a server whose queue has so many places.

    Args:
        work: an empty folder.
        pair: a name of the registry, or a folder.
    """
    flags = ("--pair", pair, "--fixed-pair", "--queue-size", str(places))
    with Server(*flags, "--cache-dir", str(work / "cache")) as server:
        server.wait_until_ready()
        visits = come(server.url, count)
        found = [f"the server's log: {line}" for line in server.errors.splitlines()]
    answered = [visit.request for visit in visits if visit.outcome == "answered"]
    found += failures(visits, _texts(pair, answered), places)
    outcomes = dict(Counter(visit.outcome for visit in visits))
    delays = [
        {"place": visit.place, "first_token_s": round(visit.first_token_s, 3)}
        for visit in visits
        if visit.first_token_s is not None
    ]
    figures = {"visitors": count, "places": places, "outcomes": outcomes, "delays": delays}
    return Finding(figures, tuple(found))


def _texts(pair: str, requests: Sequence[Request]) -> dict[Request, str]:
    """The greedy text of each, by the target alone in this process."""
    dolly = Dolly(pair)
    return {
        each: dolly.start(each, "autoregressive").finish().lanes["autoregressive"].text
        for each in requests
    }
