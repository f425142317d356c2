"""The drafter that copies from earlier answers, on held-out Dolly instructions.

1. Asked again: the speedup of a question that was answered before.
2. A follow-up: that of a summary of a passage about which something was asked before.
3. A first question: milliseconds per token with a memory of other answers, over those of the same
   drafter without one, alternately. It comes first, so that both have learned as much.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from lab.answers import turned
from lab.corpus import held_out
from lab.prompts import add_records
from lab.result import Chart, Column, Result, Row, Rows, even
from lab.spread import Spread, quartiles
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
    records, count = held_out(setup.options.data), setup.options.count
    alone = [Request(r.instruction, **_SETTINGS) for r in records if not r.context][:count]
    passages = [
        Request(r.instruction, r.context, **_SETTINGS)
        for r in records
        if 0 < len(r.context) <= _CONTEXT_CHARACTERS
    ][:count]
    dolly = yield from setup.pair()
    result = Result(pair=dolly.about, planned=2 * len(alone) + len(passages))
    memory, first = AnswerMemory(), list[tuple[float, float]]()
    for turn, request in enumerate(alone):
        times = _first_question(dolly, request, memory, turn, setup.repeats or _REPEATS)
        if turn:  # the first has nothing to remember
            first.append(times)
        _ask(dolly, request, memory, "speculative")
        result = result.measured()
        yield result
    again, following = list[Trace](), list[Trace]()
    for request in alone:
        again.append(_ask(dolly, request, memory))
        result = result.measured()
        yield result
    for request in passages:
        memory = AnswerMemory()
        _ask(dolly, request, memory, "speculative")
        following.append(_ask(dolly, replace(request, instruction=_FOLLOW_UP), memory))
        result = result.measured()
        yield result
    rows = _row(_AGAIN, again), _row(_FOLLOWING, following), _first_row(first)
    yield replace(result, rows=rows)


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
    seconds: dict[str, list[float]] = {MEMORY.name: [], HYBRID.name: []}
    for repeat in range(repeats):
        for drafter in turned([*seconds], turn + repeat):
            trace = dolly.start(replace(request, drafter=drafter), "speculative", memory).finish()
            seconds[drafter].append(trace.lanes["speculative"].seconds_per_token or 0.0)
    with_memory, without = map(median, seconds.values())
    return with_memory, without


def _row(name: str, traces: Sequence[Trace]) -> Row:
    lanes = [trace.lanes["speculative"] for trace in traces]
    return _NO_CELLS | {
        "question": name,
        "races": len(traces),
        "identical": sum(trace.identical is True for trace in traces),
        **Spread.of([trace.speedup or 0.0 for trace in traces]).cells("speedup"),
        "block": median(lane.block_efficiency or 0.0 for lane in lanes),
        "remembered": sum(lane.remembered for lane in lanes)
        / sum(len(lane.tokens) for lane in lanes),
    }


def _first_row(times: Sequence[tuple[float, float]]) -> Row:
    """Of times with a memory and without one, by question."""
    relative = Spread.of([with_memory / without for with_memory, without in times])
    return _NO_CELLS | {
        "question": _FIRST,
        "races": relative.count,
        **relative.cells("relative"),
        "relative_all": sum(each for each, _ in times) / sum(each for _, each in times),
    }


def _conclude(rows: Rows) -> str:
    each = {row["question"]: row for row in rows}
    again, following = (each[name]["speedup"] for name in (_AGAIN, _FOLLOWING))
    first = each[_FIRST]
    return (
        f"A question asked again is answered at {again:.2f}× autoregression, a follow-up on the "
        f"same passage at {following:.2f}×; a first question takes "
        f"{first['relative']:.2f} times as long per token as without a memory, in the "
        f"median, and {first['relative_all']:.3f} times over all."
    )


_COLUMNS = (
    Column("question", "Question"),
    Column("races", "Races", digits=0),
    Column("identical", "Identical texts", digits=0),
    Column("speedup", "Speedup", "×"),
    *quartiles("speedup", "×"),
    Column("block", "Tokens per target pass"),
    Column("remembered", "Remembered tokens", "%", 0),
    Column("relative", "Time over that without a memory", "×"),
    *quartiles("relative", "×"),
    Column("relative_all", "Of all together", "×", 3),
)
_NO_CELLS: dict[str, Any] = dict.fromkeys(column.name for column in _COLUMNS)
STUDY = Study(
    name="memory",
    title="Answers remembered",
    question="How much faster is an answer that copies from earlier ones, and what does a memory "
    "cost a first question?",
    needs="Dolly’s records (--data)",
    seconds=240,
    columns=_COLUMNS,
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
    arguments=partial(add_records, count=24, what="questions of each kind"),
)
