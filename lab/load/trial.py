"""What a server of replicas holds, in figures.

    python -m lab.load.trial

Two replicas of one core each behind the page, and visitors through its API; then one process with
two cores, and the same visitors. It takes the machine for itself for some minutes. It saves
`lab/results/trial.json`, and ends with status 1 if a claim does not hold or a step fails.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from importlib.metadata import version
from itertools import cycle, islice, pairwise, repeat
from statistics import fmean, median

from lab.load.parts import Finding, run, show
from lab.load.server import Server, running
from lab.load.visitor import LONG, Race, Visitor
from lab.load.visitors import overtaken
from lab.prompts import KINDS
from lab.saved import save_figures
from pipeline.decoding.events import FinishReason
from pipeline.models.pairs import DEFAULT_PAIR, PAIRS
from pipeline.request import Request
from pipeline.trace.record import Lane, Trace

_VISITORS = 12
_TOKENS = 60  # of a visitor's answer, at most
_ROUNDS = 12  # of the time per token
_RACES = 300  # of the memory
_REPLICAS = 2
_STARTING = 180.0  # seconds; both replicas load at once
_TOLD = 5.0  # seconds in which a visitor is told that the replica was lost
_FREED = 1.0  # seconds in which a replica is free for the next visitor
_TOGETHER = 1.10  # of the time per token of a replica alone
_DRAINED = 5.0  # seconds from SIGTERM to the end
_GROWTH = 3.0  # percent of memory, from the second third of the races to the last
_SAMPLES = 30  # of memory
_MIB = 2**20
_SETTINGS = PAIRS[DEFAULT_PAIR].settings
_SHORT = Request("Name three colours.", max_new_tokens=16, **_SETTINGS)

Findings = Iterator[Finding]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the trial; returns its exit status."""
    argparse.ArgumentParser(
        prog="python -m lab.load.trial", description=__doc__.splitlines()[0]
    ).parse_args(arguments)
    found = run("trial", _findings())
    settings = {"visitors": _VISITORS, "tokens": _TOKENS, "rounds": _ROUNDS, "races": _RACES}
    save_figures("trial", ray=version("ray"), settings=settings, trial=found)
    return show({"trial": found})


# --- what is tried --------------------------------------------------------------------------------


def _findings() -> Findings:
    """All steps, one after the other."""
    asked = [instruction for each in KINDS.values() for instruction, context in each if not context]
    requests = [
        Request(instruction, max_new_tokens=_TOKENS, **_SETTINGS)
        for instruction in islice(cycle(asked), _VISITORS)
    ]
    texts: list[list[str]] = []
    queue_size = ("--queue-size", str(_VISITORS))
    with Server("--replicas", str(_REPLICAS), "--threads", "1", *queue_size) as server:
        yield from _starting(server)
        with _opened(server, _VISITORS + _REPLICAS + 1) as opened:
            late, first, queue = opened[0], opened[1 : _REPLICAS + 1], opened[_REPLICAS + 1 :]
            yield from _first(late)
            yield from _many(queue, requests, texts, f"{_REPLICAS} replicas of one core")
            yield from _together(first, requests[0])
            yield from _leaving(server, queue)
            yield from _refusing(late, first, queue)
            yield from _losing(server, first)
            yield from _memory(server, first)
            yield from _draining(server, first)
    with Server("--threads", str(_REPLICAS), *queue_size) as server:
        server.wait_until_ready(_STARTING)
        with _opened(server, _VISITORS) as opened:
            opened[0].race(_SHORT).trace()  # measures what drafts cost, as replicas do on load
            yield from _many(opened, requests, texts, f"one process of {_REPLICAS} cores")
    there, alone = texts
    differ = sum(one != other for one, other in zip(there, alone, strict=True))
    claim = f"of {len(alone)} greedy texts, those that differ from the single process's"
    yield _finding(claim, differ, not differ)


def _finding(claim: str, figure: float, holds: bool = True, note: str = "") -> Finding:
    """A figure, and a failure if what is claimed of it does not hold."""
    figure = round(figure, 3)
    return Finding({claim: figure}, () if holds else (f"{claim}: {figure} {note}".rstrip(),))


def _starting(server: Server) -> Findings:
    began = time.monotonic()
    server.wait_until_ready(_STARTING)
    yield _finding("seconds from the start until all replicas are ready", time.monotonic() - began)
    for what, used in server.memory.items():
        yield _finding(f"MiB of the {what}, ready", used / _MIB)


def _first(visitor: Visitor) -> Findings:
    delays = []
    for _ in range(5):
        race = visitor.race(_SHORT)
        race.trace()
        delays.append(race.first_token_s or 0.0)
    yield _finding("seconds from a call to the first token, median of 5", median(delays))


def _many(
    visitors: Sequence[Visitor], requests: Sequence[Request], texts: list[list[str]], where: str
) -> Findings:
    """All at once. Adds the texts of all lanes to `texts`."""
    began = time.monotonic()
    traces = _answers(visitors, requests)
    minutes = (time.monotonic() - began) / 60
    texts.append([lane.text for trace in traces for lane in trace.lanes.values()])
    yield _finding(f"races a minute, {len(traces)} visitors, {where}", len(traces) / minutes)
    if any("replica" not in trace.environment for trace in traces):
        return
    used = len({_replica(trace) for trace in traces})
    yield _finding("replicas that raced", used, used == _REPLICAS)
    overlaps, overtakes = overlapping(traces), overtaken(map(_began, traces))
    yield _finding("races that overlap in a replica", overlaps, not overlaps)
    yield _finding("visitors who overtook one who came earlier", overtakes, not overtakes)


def _together(visitors: Sequence[Visitor], request: Request) -> Findings:
    """Alternates one visitor alone with as many as there are replicas."""
    alone, together = list[Trace](), list[Trace]()
    for _ in range(_ROUNDS):
        alone += _answers(visitors[:1], repeat(request))
        together += _answers(visitors, repeat(request))
    for lane in ("autoregressive", "speculative"):
        ratio = slowdown(alone, together, lane)
        ms = 1e3 * median(_cost(trace.lanes[lane]) for trace in together)
        yield _finding(f"ms per token with all replicas at work, {lane}", ms)
        claim = f"time per token with all replicas at work, over one alone, {lane}"
        yield _finding(claim, ratio, ratio <= _TOGETHER, f"is more than {_TOGETHER}")


def _leaving(server: Server, visitors: Sequence[Visitor]) -> Findings:
    """While others wait, one leaves: how soon does the next one begin?"""
    for how in ("Stop", "a closed tab"):
        staying, waiting = visitors[0].race(LONG), visitors[1]
        with closing(Visitor(server.url)) as visitor:
            race = visitor.race(LONG)
            race.wait_until_begun()
            leave: Callable[[], None] = race.stop if how == "Stop" else visitor.close
            staying.wait_until_begun()
            next_one = waiting.race(_SHORT)
            left = time.time()
            leave()
            freed = _began(next_one.trace()) - left
        claim = f"seconds from {how} until the replica has begun the next race"
        yield _finding(claim, freed, 0 <= freed <= _FREED)
        staying.stop()
        staying.failure(_STARTING)


def _refusing(late: Visitor, first: Sequence[Visitor], queue: Sequence[Visitor]) -> Findings:
    """Every replica and every place in the queue is taken, and one more comes."""
    racing = _racing(first)
    waiting = [visitor.race(_SHORT) for visitor in queue]
    asked = time.monotonic()
    line = late.race(_SHORT).failure(_TOLD)
    seconds = time.monotonic() - asked
    for race in racing:
        race.stop()
    answered = sum(race.trace().finished for race in waiting)
    claim = "seconds until one visitor too many is refused"
    yield _finding(claim, seconds, "full" in line.lower(), line)
    yield _finding("visitors of the full queue answered", answered, answered == len(waiting))


def _losing(server: Server, visitors: Sequence[Visitor]) -> Findings:
    """A replica is killed in the middle of a race."""
    replica, races = server.replicas[0], _racing(visitors)
    killed = time.monotonic()
    replica.kill()
    while not any(race.ended for race in races) and time.monotonic() - killed < _STARTING:
        time.sleep(0.01)
    seconds = time.monotonic() - killed
    lost = [at for at, race in enumerate(races) if race.ended]
    line = races[lost[0]].failure(_TOLD) if lost else ""
    told = seconds <= _TOLD and "run it again" in line and len(lost) == 1
    yield _finding("seconds from kill -9 until its visitor is told", seconds, told, line)
    again = visitors[lost[0] if lost else 0].race(_SHORT)
    others = [race for at, race in enumerate(races) if at not in lost]
    went_on = sum(not race.ended for race in others)
    yield _finding("other races that went on", went_on, went_on == len(others))
    for race in others:
        race.stop()
    whole = again.trace().finished
    yield _finding("that visitor's next race, whole", int(whole), whole)
    ids = set[str]()
    while len(ids) < _REPLICAS and time.monotonic() - killed < _STARTING:
        ids = {*map(_replica, _answers(visitors, repeat(_SHORT)))}
    back = time.monotonic() - killed
    yield _finding("seconds from kill -9 until all replicas race", back, len(ids) == _REPLICAS)


def _memory(server: Server, visitors: Sequence[Visitor]) -> Findings:
    """Resident memory while short races go on, two at a time."""
    used = defaultdict[str, list[float]](list)
    for at in range(0, _RACES, len(visitors)):
        _answers(visitors, repeat(_SHORT))
        if at % (_RACES // _SAMPLES) < len(visitors):
            for what, size in server.memory.items():
                used[what].append(size / _MIB)
    for what, sizes in used.items():
        more = 100 * growth(sizes)
        yield _finding(f"MiB of the {what}, after all races", sizes[-1])
        claim = f"percent that the {what} grew by in the last third of {_RACES} races"
        yield _finding(claim, more, more <= _GROWTH, f"is more than {_GROWTH}")


def _draining(server: Server, visitors: Sequence[Visitor]) -> Findings:
    """SIGTERM in the middle of races."""
    races, processes = _racing(visitors), server.processes
    began = time.monotonic()
    status = server.terminate()
    seconds = time.monotonic() - began
    yield _finding("seconds from SIGTERM to the end", seconds, not status and seconds <= _DRAINED)
    finishes = [{lane.finish for lane in race.trace().lanes.values()} for race in races]
    given = finishes.count({FinishReason.CANCELLED})
    yield _finding("races cut off whose visitor has the trace", given, given == len(races))
    left = sum(map(running, processes))
    yield _finding("processes left", left, not left)


def _answers(visitors: Iterable[Visitor], requests: Iterable[Request]) -> list[Trace]:
    """Of visitors who ask at the same time."""
    races = [visitor.race(request) for visitor, request in zip(visitors, requests, strict=False)]
    return [race.trace() for race in races]


def _racing(visitors: Sequence[Visitor]) -> list[Race]:
    """A long race of each, begun."""
    races = [visitor.race(LONG) for visitor in visitors]
    for race in races:
        race.wait_until_begun()
    return races


@contextmanager
def _opened(server: Server, count: int) -> Iterator[list[Visitor]]:
    """So many visitors of the server."""
    with ExitStack() as stack:
        yield [stack.enter_context(closing(Visitor(server.url))) for _ in range(count)]


# --- figures --------------------------------------------------------------------------------------


def overlapping(traces: Sequence[Trace]) -> int:
    """Races that began in a replica before the one there had computed all it did."""
    by_replica = defaultdict[str, list[tuple[float, float]]](list)
    for trace in traces:
        began = _began(trace)
        by_replica[_replica(trace)].append((began, began + _computed(trace)))
    return sum(
        later[0] < earlier[1]
        for spans in by_replica.values()
        for earlier, later in pairwise(sorted(spans))
    )


def slowdown(alone: Sequence[Trace], together: Sequence[Trace], lane: str) -> float:
    """How much longer a token takes, by the medians of each replica; the mean of the replicas."""

    def medians(traces: Sequence[Trace]) -> dict[str, float]:
        costs = defaultdict[str, list[float]](list)
        for trace in traces:
            costs[_replica(trace)].append(_cost(trace.lanes[lane]))
        return {name: median(each) for name, each in costs.items()}

    one, all_at_work = medians(alone), medians(together)
    return fmean(all_at_work[name] / one[name] for name in one)


def growth(sizes: Sequence[float]) -> float:
    """Of the mean from the second third to the last, as a share."""
    third = len(sizes) // 3
    return fmean(sizes[-third:]) / fmean(sizes[third : 2 * third]) - 1 if third else 0.0


def _replica(trace: Trace) -> str:
    return str(trace.environment["replica"])


def _began(trace: Trace) -> float:
    return float(trace.environment["replica_began"])


def _computed(trace: Trace) -> float:
    """Seconds of both lanes."""
    lanes = trace.lanes.values()
    return sum(lane.prefill_s + sum(step.seconds for step in lane.steps) for lane in lanes)


def _cost(lane: Lane) -> float:
    """Seconds per decoded token."""
    assert lane.seconds_per_token
    return lane.seconds_per_token


if __name__ == "__main__":
    sys.exit(main())
