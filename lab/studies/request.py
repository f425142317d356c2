"""Every draft length on a single request: the visitor's own."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from lab.answers import Answers, answered, tabulated
from lab.draft_lengths import COLUMNS, NONE, REPEATS, auto, best_fixed, conditions, rows_of
from lab.result import Chart, Column, Result, Row, Rows
from lab.study import Setup, Study


def _measure(setup: Setup) -> Generator[Result, None, None]:
    dolly = yield from setup.pair()
    answers = answered(conditions(dolly), [setup.request], setup.repeats or REPEATS)
    yield from tabulated(answers, _rows, dolly.about)


def _rows(answers: Answers) -> Iterator[Row]:
    for row in rows_of(answers):
        low, high = answers.extremes(row["length"])
        yield {**row, "fastest": 1e3 * low, "slowest": 1e3 * high}


def _conclude(rows: Rows) -> str:
    best = best_fixed(rows)
    name = "no drafting" if best["length"] == NONE else f"K = {best['length']}"
    return (
        f"The fastest fixed draft length is {name}, {best['speedup']:.2f}× autoregression; "
        f"auto, chosen while decoding, reaches {auto(rows)['speedup']:.2f}×."
    )


def _autoregression(rows: Rows) -> float | None:
    """Milliseconds per token without drafting; None before they are measured."""
    return next((row["ms"] for row in rows if row["length"] == NONE), None)


STUDY = Study(
    name="request",
    title="Your request",
    question="Which draft length is the fastest for the request in the form?",
    seconds=30,
    columns=(*COLUMNS, Column("fastest", "Fastest", "ms"), Column("slowest", "Slowest", "ms")),
    chart=Chart(
        kind="bars",
        x="length",
        y=("ms",),
        whiskers=("fastest", "slowest"),
        level=_autoregression,
        reading="Bars are medians; whiskers reach from the fastest to the slowest answer; the "
        "dashed line is autoregression.",
    ),
    measure=_measure,
    conclude=_conclude,
)
