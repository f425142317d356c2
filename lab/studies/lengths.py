"""Every draft length on six kinds of prompts."""

from __future__ import annotations

import statistics
from collections.abc import Generator, Iterator
from functools import partial
from itertools import groupby
from operator import itemgetter

from lab.answers import Answers, answered, tabulated
from lab.draft_lengths import (
    AUTO,
    COLUMNS,
    LENGTHS,
    REPEATS,
    auto,
    best_fixed,
    conditions,
    row_of,
)
from lab.prompts import KINDS
from lab.result import Chart, Column, Result, Row, Rows, even, number
from lab.study import Setup, Study
from pipeline.request import Request
from pipeline.words import percent

_MAX_NEW_TOKENS = 100
_TOLERANCE = 0.05  # by which "auto" may be slower than the best fixed length


def _measure(setup: Setup) -> Generator[Result, None, None]:
    dolly = yield from setup.pair()
    kinds = [kind for kind, prompts in KINDS.items() for _ in prompts]
    requests = [
        Request(*prompt, max_new_tokens=_MAX_NEW_TOKENS, drafter=setup.request.drafter)
        for prompts in KINDS.values()
        for prompt in prompts
    ]
    answers = answered(conditions(dolly), requests, setup.repeats or REPEATS)
    yield from tabulated(answers, partial(_rows, kinds), dolly.about)


def _rows(kinds: list[str], answers: Answers) -> Iterator[Row]:
    for kind in dict.fromkeys(kinds):
        requests = [place for place, each in enumerate(kinds) if each == kind]
        for length in LENGTHS:
            if row := row_of(answers, length, requests):
                yield {"kind": kind, **row}


def _conclude(rows: Rows) -> str:
    behind = []  # how much slower "auto" is than the best fixed length, for each kind
    for _, group in groupby(rows, itemgetter("kind")):
        of_kind = [*group]
        times = (number(row["ms"]) for row in (auto(of_kind), best_fixed(of_kind)))
        adaptive, fixed = times
        behind.append(adaptive / fixed - 1)
    speedup = statistics.median(number(row["speedup"]) for row in rows if row["length"] == AUTO)
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
