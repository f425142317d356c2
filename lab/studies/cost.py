"""What a token costs beside time: CPU seconds, bytes of weights read, joules.

Each lane answers alone, greedily, in an order that turns; the prompt is left out. CPU seconds and
joules are those of a `Meter`, the latter only where Linux reports them (RAPL). A forward pass reads
each weight once, as it is stored: a tied head counts, rows looked up in an embedding do not.
"""

from __future__ import annotations

import statistics
from argparse import ArgumentParser
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lab.answers import turned
from lab.methods import methods
from lab.prompts import KINDS
from lab.result import Chart, Column, Result, Row, Rows, number
from lab.spread import Spread
from lab.study import Setup, Study
from pipeline.decoding.events import AUTOREGRESSIVE
from pipeline.decoding.race import Mode
from pipeline.request import Request
from pipeline.trace.cost import RAPL

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly

_REPEATS = 3


def _answer(
    dolly: Dolly,
    prompt: tuple[str, str],
    max_new_tokens: int,
    settings: Mapping[str, Any] | None,
) -> dict[str, float | None]:
    """Answers an instruction and its context with one lane; what a token took, its prompt left out:
    milliseconds, CPU milliseconds, megabytes of weights read, and joules.

    Args:
        settings: further fields of the request; None is autoregressive.
    """
    request = Request(*prompt, max_new_tokens, **(settings or {}))
    mode: Mode = "autoregressive" if settings is None else "speculative"
    trace = dolly.start(request, mode).finish()
    lane, cost = trace.lanes[mode], trace.costs[mode]
    return {
        "ms": 1e3 * lane.decode_s / len(lane.tokens),
        "cpu_ms": 1e3 * number(cost.cpu_s),
        "weights_mb": number(cost.weight_bytes) / 1e6,
        "joules": cost.joules if cost.joules_by == RAPL else None,
    }


def _measure(setup: Setup) -> Generator[Result, None, None]:
    dolly = yield from setup.pair()
    pair, about = dolly.pair, dolly.about
    models = {name: about[name] for name in ("target", "draft", "block") if about[name]}
    sizes = {name: model["pass_bytes"] for name, model in models.items()}
    budget, repeats = setup.options.max_new_tokens, setup.repeats or _REPEATS
    asked = [prompt for prompts in KINDS.values() for prompt in prompts]
    ways = methods(pair)
    for settings in ways.values():  # warms up the caches and measures the costs for `auto`
        yield Result(doing="warming up")
        _answer(dolly, asked[0], budget, settings)
    costs: dict[str, list[dict[str, float | None]]] = {name: [] for name in ways}
    figures = {"new_tokens": budget, "bytes_of_a_pass": sizes}
    result = Result(pair=dolly.about, planned=len(asked) * repeats * len(ways), figures=figures)
    for turn, prompt in enumerate(asked * repeats):
        for name in turned([*ways], turn):
            costs[name].append(_answer(dolly, prompt, budget, ways[name]))
            result = replace(result, done=result.done + 1)
            yield result
        result = replace(result, rows=tuple(rows_of(costs)))
    yield result


def rows_of(costs: Mapping[str, Sequence[Mapping[str, float | None]]]) -> Iterator[Row]:
    """A row for each method: medians, and quartiles once there are two answers."""
    for name, answers in costs.items():
        row: dict[str, str | float | None] = {"method": name}
        for unit in answers[0]:
            samples = [cost[unit] for cost in answers if cost[unit] is not None]
            row[unit] = statistics.median(map(number, samples)) if samples else None
        for unit in ("ms", "cpu_ms"):
            spread = Spread.of([number(cost[unit]) for cost in answers] * (1 + (len(answers) < 2)))
            row |= {f"{unit}_low": spread.low, f"{unit}_high": spread.high}
        yield row


def _conclude(rows: Rows) -> str:
    slow, *others = rows
    best = min(others, key=lambda row: number(row["cpu_ms"]))
    return (
        f"A token takes {number(slow['cpu_ms']):.1f} ms of CPU time and "
        f"{number(slow['weights_mb']):.0f} MB of weights autoregressively; least with "
        f"“{best['method']}”: {number(best['cpu_ms']):.1f} ms and "
        f"{number(best['weights_mb']):.0f} MB."
    )


def _autoregression(rows: Rows) -> float | None:
    return next((number(row["ms"]) for row in rows if row["method"] == AUTOREGRESSIVE), None)


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
        Column("ms_low", "Lower quartile", "ms"),
        Column("ms_high", "Upper quartile", "ms"),
        Column("cpu_ms", "CPU time per token", "ms"),
        Column("cpu_ms_low", "Lower quartile", "ms"),
        Column("cpu_ms_high", "Upper quartile", "ms"),
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
