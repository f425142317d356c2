"""The paper's table with another pair: seconds for N new tokens with both decoders.

The paper (arXiv 2311.04951) ran Dolly v2 12B with 3B as its draft on a server. Seconds of different
machines and models cannot be compared; speedups can. Dolly's records that were held out from the
training and records that were in it are measured apart, and so are answers that end at their end
key and answers that are made to go on to N tokens.
"""

from __future__ import annotations

import statistics
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product

from lab.answers import Answers, answered, endless, seconds_of, tabulated
from lab.corpus import held_out, training_records
from lab.methods import BLOCK_DRAFT, DRAFT_MODEL, PAGE, methods
from lab.prompts import add_records, evenly
from lab.result import Cell, Chart, Column, Result, Row, Rows, even
from lab.study import Setup, Study
from pipeline.decoding.events import AUTOREGRESSIVE
from pipeline.request import Request

PAPER = {40: (19.87, 13.61), 100: (44.25, 26.97)}  # N: autoregressive, speculative seconds
THE_PAPER, HELD_OUT, TRAINED_ON = "the paper", "held out", "trained on"
_REPEATS = 3
# By method, the columns of its seconds and of its speedup.
_CELLS = {
    AUTOREGRESSIVE: ("slow_s", ""),
    DRAFT_MODEL: ("model_s", "model_x"),
    BLOCK_DRAFT: ("block_s", "block_x"),
    PAGE: ("page_s", "page_x"),
}


def _measure(setup: Setup) -> Generator[Result, None, None]:
    data, count = setup.options.data, setup.options.count
    held, trained = evenly(held_out(data), count), evenly(training_records(data), count)
    sources = {HELD_OUT: range(len(held)), TRAINED_ON: range(len(held), len(held) + len(trained))}
    requests = [
        Request(record.instruction, record.context, max_new_tokens=max(PAPER))
        for record in (*held, *trained)
    ]
    dolly = yield from setup.pair()
    conditions = methods(dolly)
    conditions += [replace(each, name=_at_n(each.name)) for each in methods(endless(dolly))]
    answers = answered(conditions, requests, setup.repeats or _REPEATS)
    yield from tabulated(answers, partial(rows_of, sources), dolly.about)


def _at_n(method: str) -> str:
    """The condition under which answers of a method do not end before N tokens."""
    return f"{method}, at N"


def rows_of(sources: Mapping[str, range], answers: Answers) -> Iterator[Row]:
    """The paper's rows and ours. The first 40 tokens of an answer are the answer to N = 40.

    Args:
        sources: the requests by where their records are from.
    """
    yield from _of_the_paper()
    for tokens, (source, requests), ends in product(PAPER, sources.items(), (True, False)):
        here = answers.within(requests)
        made = {method: here.lanes(method if ends else _at_n(method)) for method in _CELLS}
        lengths = [min(len(lane.tokens), tokens) for lane in made[AUTOREGRESSIVE]]
        if not lengths:
            continue
        about: dict[str, Cell] = {
            "case": f"{tokens}, {source}, {'at its end key' if ends else 'at N'}",
            "new_tokens": tokens,
            "records": source,
            "ends": ends,
            "count": len(requests),
            "tokens": statistics.mean(lengths),
        }
        seconds = {
            method: statistics.mean(lane.prefill_s + seconds_of(lane, tokens) for lane in lanes)
            for method, lanes in made.items()
            if lanes
        }
        yield _row(about, seconds)


def _row(about: Mapping[str, Cell], seconds: Mapping[str, float]) -> Row:
    """A row with the ratios of mean seconds; None where a method was not measured."""
    row: dict[str, Cell] = {**about}
    for method, (cell, ratio) in _CELLS.items():
        taken = seconds.get(method)
        row[cell] = taken
        if ratio:
            row[ratio] = seconds[AUTOREGRESSIVE] / taken if taken else None
    return row


def _of_the_paper() -> Iterator[Row]:
    for tokens, (slow, fast) in PAPER.items():
        about: dict[str, Cell] = {
            "case": f"{tokens}, {THE_PAPER}",
            "new_tokens": tokens,
            "records": THE_PAPER,
            "ends": None,
            "count": None,
            "tokens": tokens,
        }
        yield _row(about, {AUTOREGRESSIVE: slow, DRAFT_MODEL: fast})


def _conclude(rows: Rows) -> str:
    said = []
    for name, cell in ((THE_PAPER, "model_x"), (HELD_OUT, "model_x"), (HELD_OUT, "page_x")):
        found = [row for row in rows if row["records"] == name and row["ends"] in (None, True)]
        said.append(" and ".join(f"{row[cell]:.2f}×" for row in found))
    return (
        f"The paper’s speedups for 40 and 100 tokens are {said[0]}; ours on held-out records, "
        f"prompt included, {said[1]} in its way, with a draft model and a fixed length, and "
        f"{said[2]} as the page begins."
    )


STUDY = Study(
    name="paper",
    title="The paper’s table",
    question="How much faster are 40 and 100 new tokens, prompt included, beside the paper’s?",
    needs="Dolly’s records (--data)",
    seconds=840,
    columns=(
        Column("case", "Tokens at most, records, end"),
        Column("records", "Records"),
        Column("new_tokens", "New tokens at most", digits=0),
        Column("ends", "Ends at its end key"),
        Column("count", "Records asked", digits=0),
        Column("tokens", "Tokens", digits=0),
        Column("slow_s", "Autoregressive", "s", 3),
        Column("model_s", DRAFT_MODEL.capitalize(), "s", 3),
        Column("block_s", BLOCK_DRAFT.capitalize(), "s", 3),
        Column("page_s", PAGE.capitalize(), "s", 3),
        Column("model_x", "Speedup of the draft model", "×"),
        Column("block_x", "Of the block draft", "×"),
        Column("page_x", "As the page begins", "×"),
    ),
    chart=Chart(
        kind="bars",
        x="case",
        y=("model_x", "block_x", "page_x"),
        axis="speedup, ×",
        level=even,
        reading="Answers end at their end key, or are made to go on to N tokens. Models and "
        "machines differ, so compare the speedups, not the seconds.",
    ),
    measure=_measure,
    conclude=_conclude,
    arguments=partial(add_records, count=12, what="records of each kind"),
)
