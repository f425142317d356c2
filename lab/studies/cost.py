"""What a token costs beside time: CPU seconds, bytes of weights read, joules.

Each lane answers alone, greedily, in an order that turns; the prompt is left out. CPU seconds and
joules are those of a `Meter`, the latter only where Linux reports them (RAPL). A forward pass reads
each weight once, as it is stored: a tied head counts, rows looked up in an embedding do not.
"""

from __future__ import annotations

import statistics
from argparse import ArgumentParser
from collections.abc import Generator, Iterator

from lab.answers import Answer, Answers, answered, tabulated
from lab.methods import methods
from lab.prompts import EVERY
from lab.result import Chart, Column, Result, Row, Rows
from lab.spread import Spread, quartiles
from lab.study import Setup, Study
from pipeline.decoding.events import AUTOREGRESSIVE
from pipeline.request import Request
from pipeline.trace.cost import RAPL

_REPEATS = 3


def _measure(setup: Setup) -> Generator[Result, None, None]:
    dolly = yield from setup.pair()
    about, budget = dolly.about, setup.options.max_new_tokens
    models = {name: about[name] for name in ("target", "draft", "block") if about[name]}
    requests = [Request(*prompt, max_new_tokens=budget) for prompt in EVERY]
    yield from tabulated(
        answered(methods(dolly), requests, setup.repeats or _REPEATS),
        rows_of,
        about,
        new_tokens=budget,
        bytes_of_a_pass={name: model["pass_bytes"] for name, model in models.items()},
    )


def rows_of(answers: Answers) -> Iterator[Row]:
    """A row for each method once it has two answers: medians, and quartiles of times."""
    for method in answers.conditions:
        costs = [_cost(answer) for answer in answers.of(method)]
        if len(costs) < 2:
            continue
        row: dict[str, str | float | None] = {"method": method}
        for unit in costs[0]:
            samples = [cost[unit] for cost in costs if cost[unit] is not None]
            row[unit] = statistics.median(samples) if samples else None
        for unit in ("ms", "cpu_ms"):
            row |= Spread.of([cost[unit] for cost in costs]).cells(unit)
        yield row


def _cost(answer: Answer) -> Row:
    """What a token took: milliseconds, CPU milliseconds, megabytes of weights read, and joules."""
    lane, cost = answer.lane, answer.cost
    assert cost.cpu_s is not None
    assert cost.weight_bytes is not None
    return {
        "ms": 1e3 * lane.decode_s / len(lane.tokens),
        "cpu_ms": 1e3 * cost.cpu_s,
        "weights_mb": cost.weight_bytes / 1e6,
        "joules": cost.joules if cost.joules_by == RAPL else None,
    }


def _conclude(rows: Rows) -> str:
    slow, *others = rows
    best = min(others, key=lambda row: row["cpu_ms"])
    return (
        f"A token takes {slow['cpu_ms']:.1f} ms of CPU time and "
        f"{slow['weights_mb']:.0f} MB of weights autoregressively; least with "
        f"“{best['method']}”: {best['cpu_ms']:.1f} ms and "
        f"{best['weights_mb']:.0f} MB."
    )


def _autoregression(rows: Rows) -> float | None:
    return next((row["ms"] for row in rows if row["method"] == AUTOREGRESSIVE), None)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--max-new-tokens", type=int, default=100)


STUDY = Study(
    name="cost",
    title="What a token costs beside time",
    question="What does a token cost in CPU time, weights read and energy, by way of decoding?",
    seconds=300,
    columns=(
        Column("method", "Method"),
        Column("ms", "Time per token", "ms"),
        *quartiles("ms", "ms"),
        Column("cpu_ms", "CPU time per token", "ms"),
        *quartiles("cpu_ms", "ms"),
        Column("weights_mb", "Weights read per token", "MB", 1),
        Column("joules", "Energy per token", "J"),
    ),
    chart=Chart(
        kind="bars",
        x="method",
        y=("ms", "cpu_ms"),
        axis="milliseconds per token",
        level=_autoregression,
        reading="Medians; the dashed line is the time of autoregression. CPU time is of all "
        "threads. Energy is read where Linux reports it, which few virtual machines do.",
    ),
    measure=_measure,
    conclude=_conclude,
    arguments=_arguments,
)
