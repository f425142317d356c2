"""What a server of replicas holds, in figures: `python -m lab.load.trial`.

Two replicas of one core each behind the page, and visitors through its API; then one process with
two cores, and the same visitors. It takes the machine for itself for some minutes. It writes
`results/trial.json`, and ends with status 1 if a claim does not hold or a step fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import accumulate, cycle, islice, pairwise
from pathlib import Path
from statistics import fmean, median

from lab.load.server import Server, kill, running
from lab.load.visitor import LONG, Race, Visitor
from pipeline.environment import environment
from pipeline.models.pairs import DEFAULT_PAIR, PAIRS
from pipeline.request import Request
from pipeline.trace.record import Lane, Trace

_RESULT = Path(__file__).resolve().parents[1] / "results" / "trial.json"
_REPLICAS = 2
_STARTING = 180.0  # seconds; both replicas load at once
_TOLD = 5.0  # seconds in which a visitor is told that the replica was lost
_FREED = 1.0  # seconds in which a replica is free for the next visitor
_TOGETHER = 1.10  # of the time per token of a replica alone
_DRAINED = 5.0  # seconds from SIGTERM to the end
_GROWTH = 0.03  # of memory, from the second third of the races to the last
_OVERTAKING = 0.2  # seconds; visitors begin at the same time where two replicas are free
_SAMPLES = 30  # of memory
_SETTINGS = PAIRS[DEFAULT_PAIR].settings
_SHORT = Request("Name three colours.", max_new_tokens=16, **_SETTINGS)
_ASKED = (
    "Why is the sky blue?",
    "What are the steps to plant a tree?",
    "Name five animals that live in the sea.",
    "Write a short letter to a friend.",
    "What is a neural network?",
    "How do I make a cup of tea?",
    "Give three reasons to learn a language.",
    "What is the capital of France?",
    "Explain what a contract is.",
    "List the planets of the solar system.",
    "How can I sleep better?",
    "What is the difference between a frog and a toad?",
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What was measured of a claim, and whether that holds it; None where nothing is claimed."""

    claim: str
    figure: float
    unit: str
    holds: bool | None = None
    note: str = ""


Findings = Iterator[Finding]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the trial; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m lab.load.trial", description=__doc__)
    parser.add_argument("--visitors", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=60, help="of a visitor's answer, at most")
    parser.add_argument("--rounds", type=int, default=12, help="of the time per token")
    parser.add_argument("--races", type=int, default=300, help="of the memory")
    parser.add_argument("--output", type=Path, default=_RESULT)
    options = parser.parse_args(arguments)
    started, findings, failure = time.monotonic(), list[Finding](), ""
    try:
        for finding in _findings(options):
            findings.append(finding)
            print(_line(finding), flush=True)
    except Exception as error:  # what was found before is kept
        failure = f"{type(error).__name__}: {error}"
        print(failure, file=sys.stderr)
    result = {
        "command": "python -m lab.load.trial",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment() | {"ray": version("ray")},
        "settings": {name: value for name, value in vars(options).items() if name != "output"},
        "seconds": time.monotonic() - started,
        "failure": failure,
        "findings": [asdict(each) for each in findings],
    }
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if failure or any(each.holds is False for each in findings) else 0


# --- what is tried --------------------------------------------------------------------------------


def _findings(options: argparse.Namespace) -> Findings:
    """All steps, one after the other."""
    requests = [
        Request(asked, max_new_tokens=options.tokens, **_SETTINGS)
        for asked in islice(cycle(_ASKED), options.visitors)
    ]
    texts: list[list[str]] = []
    flags = ("--replicas", str(_REPLICAS), "--threads", "1", "--queue-size", str(len(requests)))
    with Server(*flags) as server:
        yield from _starting(server)
        with _visitors(server, len(requests) + _REPLICAS + 1) as visitors:
            late, first, queue = visitors[0], visitors[1 : _REPLICAS + 1], visitors[_REPLICAS + 1 :]
            yield from _first(late)
            yield from _many(queue, requests, texts, f"{_REPLICAS} replicas of one core")
            yield from _together(first, requests[0], options.rounds)
            yield from _leaving(server, queue)
            yield from _refusing(late, first, queue)
            yield from _losing(server, first)
            yield from _memory(server, first, options.races)
            yield from _draining(server, first)
    with Server("--threads", str(_REPLICAS), "--queue-size", str(len(requests))) as server:
        server.wait_until_ready(_STARTING)
        with _visitors(server, len(requests)) as visitors:
            visitors[0].race(_SHORT).trace()  # measures what drafts cost, as replicas do on load
            yield from _many(visitors, requests, texts, f"one process of {_REPLICAS} cores")
    there, alone = texts
    differ = sum(one != other for one, other in zip(there, alone, strict=True))
    claim = "greedy texts that differ from the single process's"
    yield Finding(claim, differ, "", not differ, f"{len(alone)} texts")


def _starting(server: Server) -> Findings:
    began = time.monotonic()
    server.wait_until_ready(_STARTING)
    yield Finding("from the start until all replicas are ready", time.monotonic() - began, "s")
    for what, used in server.memory.items():
        yield Finding(f"memory of the {what}, ready", used / 2**20, "MiB")


def _first(visitor: Visitor) -> Findings:
    delays = []
    for _ in range(5):
        race = visitor.race(_SHORT)
        delays.append(race.wait_until_begun())
        race.trace()
    yield Finding("from a visitor's call to the first token, median of 5", median(delays), "s")


def _many(
    visitors: Sequence[Visitor], requests: Sequence[Request], texts: list[list[str]], where: str
) -> Findings:
    """All at once. Adds the texts of all lanes to `texts`."""
    began = time.monotonic()
    races = [visitor.race(each) for visitor, each in zip(visitors, requests, strict=True)]
    traces = [race.trace() for race in races]
    minutes = (time.monotonic() - began) / 60
    texts.append([lane.text for trace in traces for lane in trace.lanes.values()])
    yield Finding(f"races a minute, {len(races)} visitors, {where}", len(races) / minutes, "")
    if any("replica" not in trace.environment for trace in traces):
        return
    used = len({_replica(trace) for trace in traces})
    yield Finding("replicas that raced", used, "", used == _REPLICAS)
    for claim, count in (
        ("races that overlap in a replica", overlapping(traces)),
        ("visitors who overtook one who came earlier", overtaken(traces)),
    ):
        yield Finding(claim, count, "", count == 0)


def _together(visitors: Sequence[Visitor], request: Request, rounds: int) -> Findings:
    """Alternates one visitor alone with as many as there are replicas."""
    alone, together = list[Trace](), list[Trace]()
    for _ in range(rounds):
        for traces, racing in ((alone, visitors[:1]), (together, visitors)):
            races = [visitor.race(request) for visitor in racing]
            traces += [race.trace() for race in races]
    for lane in ("autoregressive", "speculative"):
        ratio = slowdown(alone, together, lane)
        ms = 1e3 * median(_cost(trace.lanes[lane]) for trace in together)
        yield Finding(
            f"time per token with all replicas at work, over one alone, {lane}",
            ratio,
            "×",
            ratio <= _TOGETHER,
            f"{ms:.1f} ms; at most {_TOGETHER:.2f}; {rounds} rounds",
        )


def _leaving(server: Server, visitors: Sequence[Visitor]) -> Findings:
    """While others wait, one leaves: how soon does the next one begin?"""
    for how in ("Stop", "a closed tab"):
        staying, waiting = visitors[0].race(LONG), visitors[1]
        with ExitStack() as stack:
            if how == "Stop":
                race = visitors[2].race(LONG)
                race.wait_until_begun()
                leave: Callable[[], None] = race.stop
            else:
                command = [sys.executable, "-m", "lab.load.visitor", server.url]
                tab = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                stack.enter_context(tab)
                stack.callback(tab.kill)  # else the context would wait for its race
                assert tab.stdout
                tab.stdout.readline()
                leave = tab.kill
            staying.wait_until_begun()
            next_one = waiting.race(_SHORT)
            left = time.time()
            leave()
            freed = _began(next_one.trace()) - left
        yield Finding(
            f"from {how} until the replica has begun the next race",
            freed,
            "s",
            0 <= freed <= _FREED,
        )
        staying.stop()
        staying.failure(_STARTING)


def _refusing(late: Visitor, first: Sequence[Visitor], queue: Sequence[Visitor]) -> Findings:
    """Every replica and every place in the queue is taken, and one more comes."""
    racing = [visitor.race(LONG) for visitor in first]
    for race in racing:
        race.wait_until_begun()
    waiting = [visitor.race(_SHORT) for visitor in queue]
    asked = time.monotonic()
    line = late.race(_SHORT).failure(_TOLD)
    seconds = time.monotonic() - asked
    for race in racing:
        race.stop()
    answered = sum(race.trace().finished for race in waiting)
    yield Finding(
        "until one visitor too many is refused", seconds, "s", "full" in line.lower(), line[:120]
    )
    yield Finding("visitors of the full queue answered", answered, "", answered == len(waiting))


def _losing(server: Server, visitors: Sequence[Visitor]) -> Findings:
    """A replica is killed in the middle of a race."""
    before = server.replicas
    races = [visitor.race(LONG) for visitor in visitors[:_REPLICAS]]
    for race in races:
        race.wait_until_begun()
    killed = time.monotonic()
    kill(before[0])
    while not any(race.ended for race in races) and time.monotonic() - killed < _STARTING:
        time.sleep(0.01)
    seconds = time.monotonic() - killed
    lost = [at for at, race in enumerate(races) if race.ended]
    line = races[lost[0]].failure(_TOLD) if lost else ""
    told = seconds <= _TOLD and "run it again" in line and len(lost) == 1
    yield Finding("from kill -9 until its visitor is told", seconds, "s", told, line)
    again = visitors[lost[0] if lost else 0].race(_SHORT)
    for at, race in enumerate(races):
        if at not in lost:
            unharmed = not race.ended
            yield Finding("other races that went on", int(unharmed), "", unharmed)
            race.stop()
    whole = again.trace().finished
    yield Finding("that visitor's next race, whole", int(whole), "", whole)
    ids = set[str]()
    while len(ids) < _REPLICAS and time.monotonic() - killed < _STARTING:
        pair = [visitor.race(_SHORT) for visitor in visitors[:_REPLICAS]]
        ids = {_replica(race.trace()) for race in pair}
    back = time.monotonic() - killed
    yield Finding("from kill -9 until all replicas race", back, "s", len(ids) == _REPLICAS)


def _memory(server: Server, visitors: Sequence[Visitor], races: int) -> Findings:
    """Resident memory while short races go on, two at a time."""
    used = defaultdict[str, list[float]](list)
    every = max(1, races // _SAMPLES)
    for at in range(0, races, len(visitors)):
        for race in [visitor.race(_SHORT) for visitor in visitors]:
            race.trace()
        if at % every < len(visitors):
            for what, size in server.memory.items():
                used[what].append(size / 2**20)
    for what, sizes in used.items():
        more = growth(sizes)
        note = f"{sizes[0]:.0f} MiB at first, {sizes[-1]:.0f} MiB at last; at most {_GROWTH:.0%}"
        claim = f"growth of the memory of the {what} in the last third of {races} races"
        yield Finding(claim, 100 * more, "%", more <= _GROWTH, note)


def _draining(server: Server, visitors: Sequence[Visitor]) -> Findings:
    """SIGTERM in the middle of races."""
    races, processes = [visitor.race(LONG) for visitor in visitors], server.processes
    for race in races:
        race.wait_until_begun()
    began = time.monotonic()
    status = server.terminate()
    seconds = time.monotonic() - began
    yield Finding("from SIGTERM to the end", seconds, "s", status == 0 and seconds <= _DRAINED)
    given = sum(_cancelled(race) for race in races)
    yield Finding("races cut off whose visitor has the trace", given, "", given == len(races))
    left = sum(map(running, processes))
    yield Finding("processes left", left, "", left == 0)


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


def overtaken(traces: Sequence[Trace]) -> int:
    """Races that began well before one that was asked for earlier; they are in that order."""
    began = [*map(_began, traces)]
    latest = accumulate(began, max)
    return sum(each < before - _OVERTAKING for before, each in zip(latest, began[1:], strict=False))


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


def _cancelled(race: Race) -> bool:
    """Whether it ended with a trace whose lanes were cut off."""
    if race.failure(_TOLD):
        return False
    return {lane.finish for lane in race.trace().lanes.values()} == {"cancelled"}


@contextmanager
def _visitors(server: Server, count: int) -> Iterator[list[Visitor]]:
    with ExitStack() as stack:
        yield [stack.enter_context(closing(Visitor(server.url))) for _ in range(count)]


def _line(finding: Finding) -> str:
    mark = {None: "     ", True: "holds", False: "FAILS"}[finding.holds]
    note = f"  ({finding.note})" if finding.note else ""
    return f"{mark}  {finding.figure:8.2f} {finding.unit:3}  {finding.claim}{note}"


if __name__ == "__main__":
    sys.exit(main())
