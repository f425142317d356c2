"""The paper's table with another pair: seconds for N new tokens with both decoders.

The paper (arXiv 2311.04951) ran Dolly v2 12B with 3B as its draft on a server. Seconds of different
machines and models cannot be compared; speedups can. Dolly's records that were held out from the
training and records that were in it are measured apart, and so are answers that end at their end
key and answers that are made to go on to N tokens.
"""

from __future__ import annotations

import statistics
from argparse import ArgumentParser
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from lab.answers import turned
from lab.methods import BLOCK_DRAFT, DRAFT_MODEL, PAGE, methods
from lab.prompts import evenly
from lab.result import Cell, Chart, Column, Result, Row, Rows, even, number
from lab.study import Setup, Study
from pipeline.decoding.events import AUTOREGRESSIVE, Event, Step
from pipeline.request import Request

if TYPE_CHECKING:  # importing it loads OpenVINO
    from lab.training.corpus import Record
    from pipeline.dolly import Dolly

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
    from lab.training.corpus import held_out, training_records

    data, count = setup.options.data, setup.options.count
    sources = {
        HELD_OUT: evenly(held_out(data), count),
        TRAINED_ON: evenly(training_records(data), count),
    }
    dolly = yield from setup.pair()
    ways = methods(dolly.pair)
    for settings in ways.values():  # warms up, and measures the costs for `auto`
        yield Result(doing="warming up")
        _seconds(dolly, sources[HELD_OUT][0], min(PAPER), False, settings)
    cases = [*product(PAPER, sources.items(), (True, False))]
    repeats = setup.repeats or _REPEATS
    answers = sum(len(records) for _, (_, records), _ in cases) * repeats
    result = Result(tuple(_of_the_paper()), pair=dolly.about, planned=answers)
    for tokens, (source, records), ends in cases:
        case = f"{tokens}, {source}, {'at its end key' if ends else 'at N'}"
        about: dict[str, Cell] = {
            "case": case,
            "new_tokens": tokens,
            "records": source,
            "ends": ends,
        }
        about["count"] = len(records)
        taken: dict[str, list[float]] = {name: [] for name in ways}
        made: list[int] = []
        for turn, record in enumerate(records * repeats):
            for name in turned([*ways], turn):
                spent, emitted = _seconds(dolly, record, tokens, ends, ways[name])
                taken[name].append(spent)
            made.append(emitted)
            result = replace(result, done=result.done + 1)
            yield result
        means = {name: statistics.mean(times) for name, times in taken.items()}
        row = _row({**about, "tokens": statistics.mean(made)}, means)
        result = replace(result, rows=(*result.rows, row))
    yield result


def _seconds(
    dolly: Dolly, record: Record, count: int, ends: bool, settings: Mapping[str, Any] | None
) -> tuple[float, int]:
    """Wall-clock seconds of one answer, prefill included, and its tokens.

    Args:
        ends: whether the end key ends it.
    """
    request = Request(record.instruction, record.context, max_new_tokens=count, **(settings or {}))
    prompt = dolly.tokenizer.ask(request.instruction, request.context)
    lanes = dolly.lanes(request)
    if not ends:
        lanes = replace(lanes, end_ids=frozenset())
    asked = prompt, request.sampling, count
    events: Iterator[Event] = (
        lanes.autoregressive(*asked)
        if settings is None
        else lanes.speculative(*asked, request.drafter, request.draft_length)
    )
    start = perf_counter()
    tokens = sum(len(event.tokens) for event in events if isinstance(event, Step))
    return perf_counter() - start, tokens


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
        said.append(" and ".join(f"{number(row[cell]):.2f}×" for row in found))
    return (
        f"The paper’s speedups for 40 and 100 tokens are {said[0]}; ours on held-out records, "
        f"prompt included, {said[1]} in its way, with a draft model and a fixed length, and "
        f"{said[2]} as the page begins."
    )


def _arguments(parser: ArgumentParser) -> None:
    from lab.training.corpus import DATA

    parser.add_argument("--count", type=int, default=12, help="records of each kind")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of Dolly's records")


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
    arguments=_arguments,
)
