"""Reproduces the paper's table with another pair: seconds for N new tokens with both decoders.

    python -m lab.studies.paper [--pair dolly-smol] [--count 12] [--repeats 3]

The paper (arXiv 2311.04951) ran Dolly v2 12B with 3B as its draft on a server. Seconds of different
machines and models cannot be compared; speedups can. Dolly's records that were held out from the
training and records that were in it are measured apart, and so are answers that end at their end
key and answers that are made to go on to N tokens.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

from lab.endless import endless
from lab.engines.methods import methods
from lab.prompts import evenly
from lab.report import save
from lab.table import table
from lab.training.corpus import DATA, Record, held_out, training_records
from pipeline.decoding.events import AUTOREGRESSIVE, Event, Step
from pipeline.dolly import Dolly
from pipeline.errors import UserError
from pipeline.models.pairs import DEFAULT_PAIR
from pipeline.request import Request

PAPER = {40: (19.87, 13.61), 100: (44.25, 26.97)}  # N: autoregressive, speculative seconds


def seconds(
    dolly: Dolly, record: Record, count: int, ends: bool, settings: Mapping[str, Any] | None
) -> tuple[float, int]:
    """Wall-clock seconds of one answer, prefill included, and its tokens.

    Args:
        ends: whether the end key ends it.
    """
    request = Request(record.instruction, record.context, max_new_tokens=count, **(settings or {}))
    prompt = dolly.tokenizer.ask(request.instruction, request.context)
    lanes = dolly.lanes(request) if ends else endless(dolly.lanes(request))
    asked = prompt, request.sampling, count
    events: Iterator[Event] = (
        lanes.autoregressive(*asked)
        if settings is None
        else lanes.speculative(*asked, request.drafter, request.draft_length)
    )
    start = perf_counter()
    tokens = sum(len(event.tokens) for event in events if isinstance(event, Step))
    return perf_counter() - start, tokens


def measure(
    dolly: Dolly, records: list[Record], count: int, ends: bool, repeats: int
) -> dict[str, Any]:
    """Mean seconds of an answer by method, in an order that turns, and the ratios of the means."""
    ways = methods(dolly.pair)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    tokens: list[int] = []
    for turn, record in enumerate(records * repeats):
        names = [*ways][turn % len(ways) :] + [*ways][: turn % len(ways)]
        for name in names:
            spent, made = seconds(dolly, record, count, ends, ways[name])
            taken[name].append(spent)
        tokens.append(made)
    means = {name: statistics.mean(times) for name, times in taken.items()}
    ratios = {name: means[AUTOREGRESSIVE] / mean for name, mean in means.items()}
    return {"seconds": means, "speedup": ratios, "tokens": statistics.mean(tokens)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pair", default=DEFAULT_PAIR)
    parser.add_argument("--count", type=int, default=12, help="records of each kind")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data", type=Path, default=DATA)
    options = parser.parse_args()
    try:
        sources = {
            "held out": evenly(held_out(options.data), options.count),
            "trained on": evenly(training_records(options.data), options.count),
        }
        dolly = Dolly(options.pair)
        results: list[dict[str, Any]] = []
        for settings in methods(dolly.pair).values():  # warms up, and measures the costs for `auto`
            seconds(dolly, sources["held out"][0], min(PAPER), False, settings)
        for count, (source, records), ends in product(PAPER, sources.items(), (True, False)):
            about = {"new_tokens": count, "records": source, "ends": ends}
            results.append(about | measure(dolly, records, count, ends, options.repeats))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    names = [*methods(dolly.pair)]
    table(
        ("N, records, end", "tokens", *(f"{n} s" for n in names), *(f"× {n}" for n in names[1:])),
        [
            [
                f"{row['new_tokens']}, {row['records']}, {'end key' if row['ends'] else 'at N'}",
                f"{row['tokens']:.0f}",
                *(f"{row['seconds'][name]:.3f}" for name in names),
                *(f"{row['speedup'][name]:.2f}" for name in names[1:]),
            ]
            for row in results
        ],
    )
    save(
        "paper",
        pair=dolly.about,
        count=options.count,
        paper=[
            {"new_tokens": count, "seconds": (slow, fast), "speedup": slow / fast}
            for count, (slow, fast) in PAPER.items()
        ],
        results=results,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
