"""Many visitors at once: each gets the answer to its own question, in the order of arrival.

They come one after the other, faster than races end, until the queue is full and beyond. The first
ninth close their tabs once all have come. Of the others who get a place, a ninth leaves in its race
and a ninth from the queue, while others still come.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Literal

from lab.load.parts import Finding
from lab.load.server import ready
from lab.load.visitor import NO_ANSWER, Race, Visitor
from lab.prompts import KINDS
from pipeline.dolly import Dolly
from pipeline.models.pairs import DEFAULT_PAIR
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
_OVERTAKING = 0.2  # seconds; races begin at the same time where two replicas are free
_LATEST = 600.0  # seconds for the first token


@dataclass(frozen=True, slots=True)
class Visit:
    """What became of a visitor.

    Attributes:
        arrived: when, in seconds since 1970.
        rank: its place in the queue when it came; 0 is the next, None is none.
        first_token_s: seconds from its arrival; None if it got none.
        trace: of one who was answered.
        line: the error, of one who was refused or lost.
    """

    request: Request
    outcome: Outcome
    arrived: float = 0.0
    rank: int | None = None
    first_token_s: float | None = None
    trace: Trace | None = None
    line: str = ""


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
        waiting = stack.enter_context(ThreadPoolExecutor(count))
        tabs = [stack.enter_context(closing(Visitor(url))) for _ in range(count)]
        closing_tabs, admitted = count // _SHARE, 0
        visits = []
        for number, (tab, request) in enumerate(zip(tabs, questions(count, seed), strict=True)):
            leaving = "closing" if number < closing_tabs else _ROLES.get(admitted % _SHARE)
            if leaving == "racing":  # long enough to be left
                request = replace(request, max_new_tokens=max(_LENGTHS))
            race = tab.race(request)
            admitted += leaving != "closing" and race.rank is not None
            visits.append(waiting.submit(visit, request, race, leaving))
        for tab in tabs[:closing_tabs]:
            tab.close()
        return [each.result() for each in visits]


def visit(request: Request, race: Race, leaving: Leaving | None) -> Visit:
    """Waits for the answer, or leaves before it.

    Args:
        leaving: when it presses Stop, or that its tab is closed; None if it stays.
    """

    def became(outcome: Outcome, trace: Trace | None = None, line: str = "") -> Visit:
        return Visit(request, outcome, race.asked, race.rank, race.first_token_s, trace, line)

    if leaving == "closing":
        return became("closed its tab")
    try:
        race.wait_until_begun(_PATIENT if leaving == "waiting" else _LATEST)
        if leaving == "racing" and not race.ended:
            race.stop()
            return became("left its race")
        return became("answered", trace=race.trace())
    except TimeoutError:
        if leaving != "waiting":
            return became("lost", line=NO_ANSWER)
        race.stop()
        return became("left the queue")
    except Exception as error:
        return became("refused" if "Queue is full" in str(error) else "lost", line=str(error))


def failures(visits: Sequence[Visit], texts: Mapping[Request, str], places: int) -> Iterator[str]:
    """A line for each defect.

    Args:
        visits: in the order of arrival.
        texts: the greedy text of each request.
        places: in the queue.
    """
    for number, each in enumerate(visits):
        about = f"visitor {number} ({each.request.instruction})"
        if each.outcome == "lost":
            yield f"{about} was lost: {each.line}"
        if each.outcome == "refused" and (not each.line or "\n" in each.line):
            yield f"{about} was not refused in one line: {each.line!r}"
        if each.trace:
            asked = each.trace.request["instruction"]
            if asked != each.request.instruction or any(
                lane.text != texts[each.request] for lane in each.trace.lanes.values()
            ):
                yield f"{about} got another answer: {asked}"
    admitted = [each for each in visits if each.outcome != "refused"]
    if len(admitted) < min(len(visits), 1 + places):
        yield f"only {len(admitted)} were admitted, with {places} places in the queue"
    began = [each.arrived + each.first_token_s for each in visits if each.first_token_s is not None]
    if overtaking := overtaken(began):
        yield f"{overtaking} raced before one who came earlier"


def overtaken(began: Iterable[float]) -> int:
    """Races that began well before one that was asked for earlier.

    Args:
        began: when each began, in seconds, in the order in which they were asked for.
    """
    began = [*began]
    latest = accumulate(began, max)
    return sum(each < before - _OVERTAKING for before, each in zip(latest, began[1:], strict=False))


def delays(visits: Sequence[Visit]) -> dict[str, float]:
    """The median seconds from arrival to the first token, by the place in the queue at arrival."""
    by_rank = defaultdict[int, list[float]](list)
    for each in visits:
        if each.rank is not None and each.first_token_s is not None:
            by_rank[each.rank].append(each.first_token_s)
    return {str(rank): round(median(each), 3) for rank, each in sorted(by_rank.items())}


def measure(work: Path, pair: str = DEFAULT_PAIR, count: int = 100, places: int = 64) -> Finding:
    """Lets so many visitors come to a server whose queue has so many places.

    Args:
        work: an empty folder.
        pair: a name of the registry, or a folder.
    """
    with ready(work, pair, "--queue-size", str(places)) as server:
        visits = come(server.url, count)
        found = [f"the server's log: {line}" for line in server.errors.splitlines()]
    answered = {each.request for each in visits if each.outcome == "answered"}
    dolly = Dolly(pair)  # the greedy text of each, by the target alone in this process
    texts = {
        each: dolly.start(each, "autoregressive").finish().lanes["autoregressive"].text
        for each in answered
    }
    figures = {
        "visitors": count,
        "places": places,
        "outcomes": dict(Counter(each.outcome for each in visits)),
        "median_first_token_s_by_rank": delays(visits),
    }
    return Finding(figures, (*found, *failures(visits, texts, places)))
