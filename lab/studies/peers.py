"""The same models, prompts and token counts in every engine that runs them.

Each engine is a process of its own, loaded once and warmed up; each prompt goes to one engine after
the other, in an order that turns. All decode greedily, and none stops before N tokens. If an engine
fails, its row has the error. Beside the embedded pair, larger shapes with random weights are run
autoregressively, without llama.cpp.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from argparse import ArgumentParser
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from lab.answers import turned
from lab.footprint import high_water_mark
from lab.prompts import KINDS
from lab.result import Cell, Chart, Column, Result, Row, Rows
from lab.shapes import SHAPES, random_model
from lab.spread import Spread
from lab.study import Setup, Study
from pipeline.models.pairs import DEFAULT_PAIR
from pipeline.text.prompt import format_prompt
from pipeline.text.tokenizer import Tokenizer

if TYPE_CHECKING:  # importing it loads OpenVINO
    from lab.engines.engines import Answer
    from lab.engines.models import Models

_MANY = 100  # tokens; an answer of more is asked for once of each kind
_REPEATS = 3
_SUBJECTS = (DEFAULT_PAIR, "160M", "410M")

Key = tuple[str, int, int]  # kind, prompt, N


@dataclass(frozen=True, slots=True)
class Timed:
    """An answer.

    Attributes:
        times: how many tokens there were, and after how many seconds.
        peak_bytes: resident memory of the process so far; None where it cannot be read.
    """

    tokens: list[int]
    times: list[tuple[int, float]]
    seconds: float
    peak_bytes: int | None = None

    @property
    def ms_per_token(self) -> float:
        """After the first report, or of all tokens if none was reported."""
        made, first = self.times[0] if self.times else (0, 0.0)
        return 1e3 * (self.seconds - first) / (len(self.tokens) - made)


@cache
def _loaded(name: str, models: Models) -> Answer:
    from lab.engines.engines import ENGINES

    os.dup2(2, 1)  # what engines print is no part of the table
    return ENGINES[name].load(models)


def _answered(name: str, models: Models, prompt: list[int], count: int) -> Timed | str:
    """An answer of an engine, in the engine's process; or why it failed."""
    try:
        return timed(_loaded(name, models), prompt, count)
    except Exception as error:
        line = (str(error).strip() or "no message").splitlines()[0]
        return f"{type(error).__name__}: {line}"[:200]


def timed(answer: Answer, prompt: list[int], count: int) -> Timed:
    times: list[tuple[int, float]] = []
    start = perf_counter()
    tokens = answer(prompt, count, lambda made: times.append((made, perf_counter() - start)))
    return Timed(tokens, times, perf_counter() - start, high_water_mark())


@dataclass(slots=True)
class Running:
    """An engine, and its answers.

    Attributes:
        failed: why it ended; "" while it has not.
    """

    name: str
    failed: str = ""
    samples: dict[Key, list[Timed]] = field(default_factory=dict)

    def ask(
        self, pool: Executor, models: Models, prompt: list[int], count: int, key: Key | None = None
    ) -> None:
        """Keeps the answer by its key, unless the engine failed.

        Args:
            pool: the engine's process.
        """
        if self.failed:
            return
        try:
            reply = pool.submit(_answered, self.name, models, prompt, count).result()
        except BrokenExecutor:
            reply = "the process ended"
        if isinstance(reply, str):
            self.failed = reply
            pool.shutdown()
        elif key:
            self.samples.setdefault(key, []).append(reply)

    @property
    def answers(self) -> list[Timed]:
        return [each for group in self.samples.values() for each in group]

    @property
    def ms_per_token(self) -> dict[Key, float]:
        """The medians of the repeats."""
        return {
            key: statistics.median(each.ms_per_token for each in group)
            for key, group in self.samples.items()
        }

    def same_text(self, reference: Running | None) -> float | None:
        """The share of its texts that are the reference's last ones."""
        if reference is None:
            return None
        pairs = ((key, each) for key, group in self.samples.items() for each in group)
        return statistics.fmean(
            each.tokens == reference.samples[key][-1].tokens for key, each in pairs
        )


def raced(
    models: Models,
    names: Sequence[str],
    kinds: Mapping[str, Sequence[tuple[str, str]]],
    counts: Sequence[int],
    repeats: int,
    result: Result,
) -> Generator[Result, None, list[Running]]:
    """Returns the engines with their answers to all prompts. Only the first prompt of a kind gets
    the largest N.

    Args:
        names: of engines.
        kinds: by name, instructions with their contexts.
        counts: each an N.
        repeats: of all of it.
        result: what is known before.
    """
    encode = Tokenizer(models.target).encode
    turns = [
        (encode(format_prompt(*prompt)), (kind, place, count))
        for count in counts
        for kind, asked in kinds.items()
        for place, prompt in enumerate(asked[:1] if count > _MANY else asked)
    ] * repeats
    with ExitStack() as stack:
        engines = [
            (Running(name), stack.enter_context(ProcessPoolExecutor(1, get_context("spawn"))))
            for name in names
        ]
        for engine, pool in engines:
            yield replace(result, planned=0, doing=f"loading {engine.name}")
            engine.ask(pool, models, encode("Once upon a time"), 40)  # with none of the prompts
        result = replace(result, planned=result.done + len(turns))
        for turn, (prompt, key) in enumerate(turns):
            for engine, pool in turned(engines, turn):
                engine.ask(pool, models, prompt, key[-1], key)
            result = result.measured()
            yield result
    return [engine for engine, _ in engines]


def rows_of(subject: str, engines: Sequence[Running]) -> list[Row]:
    """A row for each engine. A ratio compares the medians of the repeats for one prompt and N; the
    row has the median of these ratios.
    """
    from lab.engines.engines import ENGINES, OURS, OURS_FASTEST, OURS_SPECULATIVE

    times = {engine.name: engine.ms_per_token for engine in engines}
    reference = next((e for e in engines if e.name == OURS and e.samples), None)
    rows: list[Row] = []
    for engine in engines:
        row: dict[str, Cell] = dict.fromkeys(column.name for column in COLUMNS)
        rows.append(row)
        row |= {"subject": subject, "engine": engine.name, "failed": engine.failed or None}
        if engine.failed or not engine.samples:
            continue
        mine, answers = times[engine.name], engine.answers
        spread = Spread.of([*mine.values()])
        row |= {"ms": spread.median, "low": spread.low, "high": spread.high}
        for name, other in (("over_fastest", OURS_FASTEST), ("over_speculative", OURS_SPECULATIVE)):
            ratios = [mine[key] / times[other][key] for key in mine.keys() & times.get(other, {})]
            row[name] = statistics.median(ratios) if ratios else None
        first: dict[tuple[str, int], float] = {}  # later, some engines have it cached
        for (kind, prompt, _), (sample, *_) in engine.samples.items():
            if sample.times:
                first.setdefault((kind, prompt), 1e3 * sample.times[0][1])
        row["first_ms"] = statistics.median(first.values()) if first else None
        if ENGINES[engine.name].fixed_drafts:
            row |= _drafting(answers)
        peaks = [each.peak_bytes for each in answers if each.peak_bytes]
        row["peak_mb"] = max(peaks) / 2**20 if peaks else None
        row["same"] = engine.same_text(reference)
    return rows


def _drafting(answers: Sequence[Timed]) -> dict[str, Cell]:
    """Acceptance, where each report is of a round with `DRAFT_LENGTH` drafted tokens."""
    from lab.engines.engines import DRAFT_LENGTH

    rounds = [
        later - earlier
        for each in answers
        for (earlier, _), (later, _) in pairwise([(0, 0.0), *each.times])
    ]
    accepted = sum(made - 1 for made in rounds)
    tested = sum(min(made, DRAFT_LENGTH) for made in rounds)
    return {"acceptance": accepted / tested, "block": sum(rounds) / len(rounds)}


def _measure(setup: Setup) -> Generator[Result, None, None]:
    from lab.engines.engines import DRAFT_LENGTH, ENGINES
    from lab.engines.models import EMBEDDED_MODELS, Models, for_peers

    options, repeats = setup.options, setup.repeats or _REPEATS
    figures = {"draft_length": DRAFT_LENGTH, "counts": options.counts, "repeats": repeats}
    result = Result(pair={"name": ", ".join(options.subjects)}, figures=figures)
    for subject in options.subjects:
        names, counts = options.engines or [*ENGINES], options.counts
        with tempfile.TemporaryDirectory() as made:
            yield replace(result, planned=0, doing=f"making the models of {subject}")
            if subject in SHAPES:
                known = ((name, ENGINES[name]) for name in names)
                names = [n for n, each in known if each.autoregressive and not each.reads_gguf]
                counts = counts[:1]
                folder = yield from random_model(setup, SHAPES[subject])
                models = Models(folder, folder)
            else:
                models = for_peers(EMBEDDED_MODELS, Path(made))
                result = replace(result, figures={**figures, "notes": models.differences})
            engines = yield from raced(models, names, KINDS, counts, repeats, result)
        done = result.done + len(engines[0].answers)
        rows = (*result.rows, *rows_of(subject, engines))
        result = replace(result, rows=rows, done=done, planned=done)
    yield result


def _conclude(rows: Rows) -> str:
    ran = [row for row in rows if row["subject"] == rows[0]["subject"] and not row["failed"]]
    best = min(ran, key=lambda row: row["ms"])
    others = ", ".join(
        f"{row['engine']} {row['over_fastest']:.2f}"
        for row in sorted(ran, key=lambda row: row["ms"])
        if "," not in str(row["engine"]) and row["over_fastest"] is not None
    )
    return (
        f"The fastest is “{best['engine']}” with {best['ms']:.1f} ms per token. Time per "
        f"token over this project’s fastest autoregression: {others}."
    )


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--engines", nargs="+", metavar="ENGINE", help="(default: all)")


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--subjects", nargs="+", choices=_SUBJECTS, default=[*_SUBJECTS])
    parser.add_argument("--counts", nargs="+", type=int, default=[40, 100])
    arguments(parser)


COLUMNS = (
    Column("subject", "Models"),
    Column("engine", "Engine"),
    Column("ms", "Time per token", "ms"),
    Column("low", "Lower quartile", "ms"),
    Column("high", "Upper quartile", "ms"),
    Column("over_fastest", "Over our fastest autoregression", "×"),
    Column("over_speculative", "Over our draft model, K = 4", "×"),
    Column("first_ms", "First token", "ms", 0),
    Column("acceptance", "Accepted of tested", "%", 0),
    Column("block", "Tokens per pass"),
    Column("peak_mb", "Peak memory", "MiB", 0),
    Column("same", "Text as ours", "%", 0),
    Column("failed", "Failed"),
)
STUDY = Study(
    name="peers",
    title="Other engines",
    question="How fast are other engines with the same models, prompts and token counts?",
    needs='the engines (pip install ".[engines]") and PyTorch',
    seconds=1800,
    columns=COLUMNS,
    chart=Chart(
        kind="bars",
        x="engine",
        y=("ms",),
        series="subject",
        whiskers=("low", "high"),
        logarithmic=True,
        reading="Medians over the prompts; whiskers are quartiles. 160M and 410M are random "
        "weights of that size, which only run autoregressively.",
    ),
    measure=_measure,
    conclude=_conclude,
    arguments=_arguments,
)
