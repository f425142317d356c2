"""The drafter that copies from earlier answers, on held-out Dolly instructions.

1. Asked again: the speedup of a question that was answered before.
2. A follow-up: that of a summary of a passage about which something was asked before.
3. A first question: milliseconds per token with a memory of other answers, over those of the same
   drafter without one, alternately. It comes first, so that both have learned as much.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from lab.result import Cell, Chart, Column, Result, Rows, even, number
from lab.spread import Spread
from lab.study import Setup, Study
from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.drafters.hybrid import HYBRID, MEMORY
from pipeline.decoding.race import Mode
from pipeline.request import Request
from pipeline.trace.record import Trace

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly

_FOLLOW_UP = "Summarize the passage in two sentences."
_CONTEXT_CHARACTERS = 2_000  # of a passage at most
_SETTINGS: dict[str, Any] = {"drafter": MEMORY.name, "draft_length": "auto", "max_new_tokens": 100}
_AGAIN, _FOLLOWING, _FIRST = "asked again", "a follow-up", "a first question"
_REPEATS = 3  # of a first question


def _measure(setup: Setup) -> Generator[Result, None, None]:
    from lab.training.corpus import held_out

    records, count = held_out(setup.options.data), setup.options.count
    alone = [Request(r.instruction, **_SETTINGS) for r in records if not r.context][:count]
    passages = [
        Request(r.instruction, r.context, **_SETTINGS)
        for r in records
        if 0 < len(r.context) <= _CONTEXT_CHARACTERS
    ][:count]
    dolly = yield from setup.pair()
    result = Result(pair=dolly.about, planned=2 * len(alone) + len(passages))
    first: list[float] = []  # time with a memory over that without, by question
    totals = [0.0, 0.0]
    memory = AnswerMemory()
    for turn, request in enumerate(alone):
        with_memory, without = _first_question(
            dolly, request, memory, turn, setup.repeats or _REPEATS
        )
        if turn:  # the first has nothing to remember
            first.append(with_memory / without)
            totals = [totals[0] + with_memory, totals[1] + without]
        _ask(dolly, request, memory, "speculative")
        result = replace(result, done=result.done + 1)
        yield result
    races: dict[str, list[Trace]] = {_AGAIN: [], _FOLLOWING: []}
    for request in alone:
        races[_AGAIN].append(_ask(dolly, request, memory))
        result = replace(result, done=result.done + 1)
        yield result
    for request in passages:
        memory = AnswerMemory()
        _ask(dolly, request, memory, "speculative")
        follow_up = replace(request, instruction=_FOLLOW_UP)
        races[_FOLLOWING].append(_ask(dolly, follow_up, memory))
        result = replace(result, done=result.done + 1)
        yield result
    rows = [_row(name, traces) for name, traces in races.items()]
    spread = Spread.of(first)
    rows.append(
        {
            **dict.fromkeys(rows[0]),
            "question": _FIRST,
            "races": spread.count,
            "relative": spread.median,
            "relative_low": spread.low,
            "relative_high": spread.high,
            "relative_all": totals[0] / totals[1],
        }
    )
    yield replace(result, rows=tuple(rows))


def _ask(dolly: Dolly, request: Request, memory: AnswerMemory, mode: Mode = "race") -> Trace:
    """Answers a request and remembers the answer."""
    trace = dolly.start(request, mode, memory).finish()
    lane = trace.lanes["speculative"]
    memory.add([*trace.prompt_tokens, *(token.id for token in lane.tokens)])
    return trace


def _first_question(
    dolly: Dolly, request: Request, memory: AnswerMemory, turn: int, repeats: int
) -> tuple[float, float]:
    """Median seconds per token with that memory, and of the same drafter without one."""
    both = (request, replace(request, drafter=HYBRID.name))
    seconds: dict[str, list[float]] = {one.drafter: [] for one in both}
    for repeat in range(repeats):
        for one in both[:: 1 if (turn + repeat) % 2 else -1]:
            trace = dolly.start(one, "speculative", memory).finish()
            seconds[one.drafter].append(trace.lanes["speculative"].seconds_per_token or 0.0)
    return median(seconds[MEMORY.name]), median(seconds[HYBRID.name])


def _row(name: str, traces: Sequence[Trace]) -> dict[str, Cell]:
    lanes = [trace.lanes["speculative"] for trace in traces]
    speedup = Spread.of([trace.speedup or 0.0 for trace in traces])
    return {
        "question": name,
        "races": len(traces),
        "identical": sum(trace.identical is True for trace in traces),
        "speedup": speedup.median,
        "speedup_low": speedup.low,
        "speedup_high": speedup.high,
        "block": median(lane.block_efficiency or 0.0 for lane in lanes),
        "remembered": sum(lane.remembered for lane in lanes)
        / sum(len(lane.tokens) for lane in lanes),
        "relative": None,
        "relative_low": None,
        "relative_high": None,
        "relative_all": None,
    }


def _conclude(rows: Rows) -> str:
    each = {row["question"]: row for row in rows}
    again, following = (number(each[name]["speedup"]) for name in (_AGAIN, _FOLLOWING))
    first = each[_FIRST]
    return (
        f"A question asked again is answered at {again:.2f}× autoregression, a follow-up on the "
        f"same passage at {following:.2f}×; a first question takes "
        f"{number(first['relative']):.2f} times as long per token as without a memory, in the "
        f"median, and {number(first['relative_all']):.3f} times over all."
    )


def _arguments(parser: ArgumentParser) -> None:
    from lab.training.corpus import DATA

    parser.add_argument("--count", type=int, default=24, help="questions of each kind")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of Dolly's records")


STUDY = Study(
    name="memory",
    title="Answers remembered",
    question="How much faster is an answer that copies from earlier ones, and what does a memory "
    "cost a first question?",
    needs="Dolly’s records (--data)",
    seconds=240,
    columns=(
        Column("question", "Question"),
        Column("races", "Races", digits=0),
        Column("identical", "Identical texts", digits=0),
        Column("speedup", "Speedup", "×"),
        Column("speedup_low", "Lower quartile", "×"),
        Column("speedup_high", "Upper quartile", "×"),
        Column("block", "Tokens per target pass"),
        Column("remembered", "Remembered tokens", "%", 0),
        Column("relative", "Time over that without a memory", "×"),
        Column("relative_low", "Lower quartile", "×"),
        Column("relative_high", "Upper quartile", "×"),
        Column("relative_all", "Of all together", "×", 3),
    ),
    chart=Chart(
        kind="bars",
        x="question",
        y=("speedup", "relative"),
        axis="×",
        level=even,
        reading="Speedups are over autoregression; a first question is compared with the same "
        "drafter without a memory, in time per token.",
    ),
    measure=_measure,
    conclude=_conclude,
    arguments=_arguments,
)
