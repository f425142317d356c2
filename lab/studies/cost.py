"""What a token costs beside time: CPU seconds, bytes of weights read, joules.

Each lane answers alone, greedily, in an order that turns; the prompt is left out. CPU seconds are
of this process, all threads together. A forward pass reads each weight once, as it is stored: a
tied head counts, rows looked up in an embedding do not. Joules are of the processors' packages and
of all that runs on them, where Linux reports them (RAPL).
"""

from __future__ import annotations

import statistics
from argparse import ArgumentParser
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

from lab.answers import turned
from lab.methods import methods
from lab.prompts import KINDS
from lab.result import Chart, Column, Result, Row, Rows, number
from lab.spread import Spread
from lab.study import Setup, Study
from pipeline.decoding.events import AUTOREGRESSIVE, Prefill
from pipeline.decoding.race import Mode
from pipeline.request import Request
from pipeline.trace.recording import Update

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly

POWERCAP = Path("/sys/class/powercap")
_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Usage:
    """What decoding an answer took, its prompt left out.

    Attributes:
        tokens: emitted.
        passes: forward passes, by model.
        joules: None where they cannot be measured.
    """

    tokens: int
    seconds: float
    cpu_seconds: float
    passes: Mapping[str, int]
    joules: float | None

    def per_token(self, sizes: Mapping[str, int]) -> dict[str, float | None]:
        """Milliseconds, CPU milliseconds, megabytes of weights read, and joules.

        Args:
            sizes: bytes of weights that a pass reads, by model.
        """
        read = sum(count * sizes[model] for model, count in self.passes.items())
        return {
            "ms": 1e3 * self.seconds / self.tokens,
            "cpu_ms": 1e3 * self.cpu_seconds / self.tokens,
            "weights_mb": read / 1e6 / self.tokens,
            "joules": None if self.joules is None else self.joules / self.tokens,
        }


class EnergyMeter:
    """RAPL's counters of the processors' packages. Linux lets only root read them by default.

    Args:
        root: where Linux reports them.
    """

    def __init__(self, root: Path = POWERCAP) -> None:
        packages = (z for z in root.glob("intel-rapl:*") if _read(z / "name").startswith("package"))
        self._ranges = {
            zone: int(_read(zone / "max_energy_range_uj"))
            for zone in packages
            if _read(zone / "energy_uj")
        }

    def read(self) -> dict[Path, int]:
        """Microjoules by package, from any starting point; empty where nothing can be read."""
        return {zone: int(_read(zone / "energy_uj")) for zone in self._ranges}

    def joules_since(self, before: Mapping[Path, int]) -> float | None:
        """Joules since an earlier `read`; None where nothing can be read."""
        if not self._ranges:
            return None
        now = self.read()
        # A counter starts again at zero when it is full.
        used = ((now[zone] - before[zone]) % full for zone, full in self._ranges.items())
        return sum(used) / 1e6


def _read(path: Path) -> str:
    """The text of a file of the kernel's; empty if it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _answer(
    dolly: Dolly,
    prompt: tuple[str, str],
    max_new_tokens: int,
    settings: Mapping[str, Any] | None,
) -> Usage:
    """Answers an instruction and its context with one lane, from the end of its prompt on.

    Args:
        settings: further fields of the request; None is autoregressive.
    """
    request = Request(*prompt, max_new_tokens, **(settings or {}))
    models, meter = dolly.models_for(request), EnergyMeter()
    loaded = {"target": models.target, "draft": models.draft, "block": models.block_draft}

    def passes() -> dict[str, int]:
        return {name: model.compiled.forward_passes for name, model in loaded.items() if model}

    mode: Mode = "autoregressive" if settings is None else "speculative"
    run = dolly.start(request, mode)
    for update in run:
        if isinstance(update, Update) and isinstance(update.event, Prefill):
            before, energy = passes(), meter.read()
            start, cpu_start = perf_counter(), process_time()
    seconds, cpu_seconds = perf_counter() - start, process_time() - cpu_start
    joules = meter.joules_since(energy)
    made = {name: count - before[name] for name, count in passes().items()}
    tokens = len(run.trace().lanes[mode].tokens)
    return Usage(tokens, seconds, cpu_seconds, made, joules)


def _measure(setup: Setup) -> Generator[Result, None, None]:
    from lab.weights import bytes_per_pass
    from pipeline.runtime.ir import read_model

    dolly = yield from setup.pair()
    pair, store = dolly.pair, setup.choice.store
    folders = {"target": store.folder(pair.target)}
    folders |= {"draft": store.folder(pair.draft)} if pair.draft else {}
    folders |= {"block": pair.block} if pair.block else {}
    sizes = {name: bytes_per_pass(read_model(folder)) for name, folder in folders.items()}
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
            costs[name].append(_answer(dolly, prompt, budget, ways[name]).per_token(sizes))
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
