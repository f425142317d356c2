"""Every draft length on six kinds of prompts."""

from __future__ import annotations

import statistics
from collections.abc import Generator, Iterator
from itertools import groupby
from operator import itemgetter

from lab.answers import Answers, answered, tabulated
from lab.draft_lengths import AUTO, COLUMNS, REPEATS, auto, best_fixed, conditions, rows_of
from lab.prompts import EVERY, KINDS
from lab.result import Chart, Column, Result, Row, Rows, even
from lab.study import Setup, Study
from pipeline.request import Request
from pipeline.words import percent

_MAX_NEW_TOKENS = 100
_TOLERANCE = 0.05  # by which "auto" may be slower than the best fixed length


def _measure(setup: Setup) -> Generator[Result, None, None]:
    dolly = yield from setup.pair()
    drafter = setup.request.drafter
    requests = [
        Request(*prompt, max_new_tokens=_MAX_NEW_TOKENS, drafter=drafter) for prompt in EVERY
    ]
    answers = answered(conditions(dolly), requests, setup.repeats or REPEATS)
    yield from tabulated(answers, _rows, dolly.about)


def _rows(answers: Answers) -> Iterator[Row]:
    first = 0
    for kind, prompts in KINDS.items():
        for row in rows_of(answers.within(range(first, first + len(prompts)))):
            yield {"kind": kind, **row}
        first += len(prompts)


def _conclude(rows: Rows) -> str:
    behind = []  # how much slower "auto" is than the best fixed length, for each kind
    for _, group in groupby(rows, itemgetter("kind")):
        of_kind = [*group]
        behind.append(auto(of_kind)["ms"] / best_fixed(of_kind)["ms"] - 1)
    speedup = statistics.median(row["speedup"] for row in rows if row["length"] == AUTO)
    close = sum(each <= _TOLERANCE for each in behind)
    return (
        f"auto is {speedup:.2f}× as fast as autoregression in the median of {len(behind)} kinds "
        f"of prompts; it is within {percent(_TOLERANCE)} of the best fixed length for {close} of "
        f"them, and {100 * max(behind):+.0f} % in time for the worst."
    )


STUDY = Study(
    name="lengths",
    title="Draft lengths",
    question="Which draft length is the fastest, by kind of prompt, and does auto find it?",
    seconds=600,
    columns=(Column("kind", "Prompts"), *COLUMNS),
    chart=Chart(
        kind="lines",
        x="length",
        y=("speedup",),
        series="kind",
        level=even,
        reading="Above the dashed line, drafting that many tokens pays.",
    ),
    measure=_measure,
    conclude=_conclude,
)
