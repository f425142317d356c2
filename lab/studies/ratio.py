"""How much smaller than the target a draft should be: the speedup by ratio, acceptance and K.

Targets and drafts have random weights, and the acceptance is imposed (`lab.imposed`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lab.imposed import Imposed, accepted_counts
from lab.result import Cell, Chart, Column, Mark, Result, Row, Rows, even, number
from lab.shapes import SHAPES, draft_of, model_folder
from lab.study import Setup, Study
from pipeline.decoding.drafters.model import MODEL
from pipeline.decoding.economics import CostModel, Costs
from pipeline.decoding.events import Event, Step
from pipeline.decoding.lanes import Lanes
from pipeline.decoding.sampling import SamplingParams
from pipeline.request import DRAFT_LENGTHS
from pipeline.trace.record import Trace
from pipeline.words import percent

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.runtime.model import OVModel

TARGETS = ("60M", "135M", "160M", "410M")
RATIOS = (2, 4, 10, 20, 40)
ACCEPTANCES = tuple(tenth / 10 for tenth in range(11))
LENGTHS = DRAFT_LENGTHS[1:]
_ROUNDS = 10  # of each run; acceptances in tenths are then met by whole numbers of rounds
_ASKED = 10  # the ratio that the question names
_DIGITS = 4
_TYPICAL = 0.8  # the acceptance at which ratios are compared
_PROMPT = [*range(100, 164)]
_GREEDY = SamplingParams()
_STEPS = 3  # autoregressive, beside each run
_PAPER_RATIO, _PAPER = 4.3, {40: 1.46, 100: 1.64}  # its speedups by new tokens (2311.04951)


# --- runs ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Speedup:
    """The speedup over autoregressive decoding: of a run, and as the cost model predicts it."""

    measured: float
    predicted: float


class Bench:
    """Runs a pair at an imposed acceptance, beside autoregressive steps and single passes.

    Args:
        target, draft: warm; both keep a shared prefix from then on.
        rounds: of each run that are measured.
    """

    def __init__(self, target: OVModel, draft: OVModel, rounds: int) -> None:
        for model in (target, draft):
            model.share_prefix(_PROMPT[:-1])
        self._rounds, self._rng = rounds, np.random.default_rng(0)
        self._target = partial(target.sequence, None)
        self._draft = partial(draft.sequence, None)
        self._passes = self._target(_PROMPT), self._draft(_PROMPT)

    def speedups(self, length: int, acceptances: Sequence[float]) -> Iterator[list[Speedup]]:
        """Measures a run at each acceptance with one draft length; yields those measured so far.

        Autoregressive steps and single passes are measured between the runs. Their medians are
        what all of these runs are compared with.
        """
        per_token, steps, passes = list[float](), list[float](), list[tuple[float, float, float]]()
        for acceptance in acceptances:
            planned = accepted_counts(acceptance, length, self._rounds, self._rng)
            rounds = self._speculative(length, planned)
            emitted = statistics.mean(len(each.tokens) for each in rounds)
            per_token.append(statistics.median(each.seconds for each in rounds) / emitted)
            steps += [each.seconds for each in self._autoregressive()]
            passes.append(self._single_passes(length))
            step = statistics.median(steps)
            one, verify, draft = map(statistics.median, zip(*passes, strict=True))
            costs = Costs(draft, (one, *[verify] * length)).in_steps  # no pass is in between
            yield [
                Speedup(step / seconds, CostModel(imposed, costs, length).speedup)
                for imposed, seconds in zip(acceptances, per_token, strict=False)
            ]

    def _speculative(self, length: int, planned: list[int]) -> list[Step]:
        accept = Imposed([0, *planned])
        lanes = Lanes(target=self._target, draft=self._draft, verify=accept)
        budget = (length + 1) * (len(planned) + 2)  # never reached: it would cut the last draft
        lane = lanes.speculative(_PROMPT, _GREEDY, budget, MODEL.name, length)
        return _after_the_first(lane, len(planned))

    def _autoregressive(self) -> list[Step]:
        lane = Lanes(target=self._target).autoregressive(_PROMPT, _GREEDY, _STEPS + 1)
        return _after_the_first(lane, _STEPS)

    def _single_passes(self, length: int) -> tuple[float, float, float]:
        """Seconds of a step, of verifying a draft, and of drafting a token."""
        target, draft = self._passes
        target.time_forward(1)  # so that the next is not the first pass of its size
        one = target.time_forward(1)
        # As in a round: each model's pass finds the CPU's caches filled by the other's weights.
        target.time_forward(length + 1)
        drafted = [draft.time_forward(1) for _ in range(length)]
        return one, target.time_forward(length + 1), statistics.mean(drafted)


def _after_the_first(lane: Iterator[Event], count: int) -> list[Step]:
    """So many steps. The first is left out: the plugin prepares passes of its size."""
    steps = list[Step]()
    for event in lane:
        if isinstance(event, Step):
            steps.append(event)
        if len(steps) > count:
            break
    return steps[1:]


@dataclass(frozen=True, slots=True)
class Run:
    """What was measured of a target with one of its drafts, at an acceptance and a K."""

    target: str
    ratio: int
    acceptance: float
    length: int
    speedup: Speedup

    @property
    def error(self) -> float:
        """Of the predicted speedup, as a share of the measured one; not negative."""
        return abs(self.speedup.predicted / self.speedup.measured - 1)


def _measure(setup: Setup) -> Generator[Result, None, None]:
    store = setup.choice.store
    tokenizer = store.folder(setup.choice.pair.target) / "tokenizer.json"
    folders: dict[str, tuple[Path, dict[int, Path]]] = {}
    for name in TARGETS:
        target, drafts = SHAPES[name], dict[int, Path]()
        for ratio in RATIOS:
            yield Result(doing=f"making a draft {ratio}× smaller than {name}, random weights")
            drafts[ratio] = model_folder(
                draft_of(target.parameters / ratio), "int8", tokenizer, store
            )
        yield Result(doing=f"making {name}, random weights")
        folders[name] = model_folder(target, "int8", tokenizer, store), drafts
    yield from measured(folders, ACCEPTANCES, LENGTHS, setup.repeats or _ROUNDS)


def measured(
    folders: Mapping[str, tuple[Path, Mapping[int, Path]]],
    acceptances: Sequence[float],
    lengths: Sequence[int],
    rounds: int,
) -> Generator[Result, None, None]:
    """Measures targets with their drafts.

    Args:
        folders: of the target's IR and, by ratio, of its drafts', by the name of the target.
        rounds: of each run.
    """
    from pipeline.runtime.model import OVModel

    pairs = sum(len(drafts) for _, drafts in folders.values())
    result = Result(
        planned=pairs * len(acceptances) * len(lengths),
        pair={"name": "random weights, imposed acceptance"},
    )
    runs = list[Run]()
    for name, (folder, drafts) in folders.items():
        yield replace(result, doing=f"compiling {name}")
        target = OVModel(folder)
        target.warm_up()
        for ratio, of_draft in drafts.items():
            draft = OVModel(of_draft)
            draft.warm_up()
            bench = Bench(target, draft, rounds)
            for length in lengths:
                for speedups in bench.speedups(length, acceptances):
                    made = [
                        Run(name, ratio, acceptance, length, speedup)
                        for acceptance, speedup in zip(acceptances, speedups, strict=False)
                    ]
                    result = replace(result, done=result.done + 1)
                    yield result
                runs += made
            result = replace(result, rows=tuple(rows_of(runs)))
            yield result


def rows_of(runs: Sequence[Run]) -> Iterator[Row]:
    """A row for each ratio and acceptance, over all targets that are measured."""
    for ratio in dict.fromkeys(run.ratio for run in runs):
        for acceptance in dict.fromkeys(run.acceptance for run in runs):
            here = [each for each in runs if (each.ratio, each.acceptance) == (ratio, acceptance)]
            best = {
                name: max((run for run in here if run.target == name), key=_speed)
                for name in dict.fromkeys(run.target for run in here)
            }
            by_length = {
                length: statistics.median(_speed(run) for run in here if run.length == length)
                for length in dict.fromkeys(run.length for run in here)
            }
            row: dict[str, Cell] = {
                "ratio": f"{ratio}×",
                "acceptance": acceptance,
                "speedup": statistics.median(map(_speed, best.values())),
                "lowest": min(map(_speed, best.values())),
                "highest": max(map(_speed, best.values())),
                "predicted": statistics.median(run.speedup.predicted for run in best.values()),
                "error": statistics.median(run.error for run in here),
                "length": max(by_length, key=by_length.__getitem__),
                **{name: _speed(run) for name, run in best.items()},
                **{f"k{length}": speed for length, speed in by_length.items()},
            }
            yield {
                name: round(cell, _DIGITS) if isinstance(cell, float) else cell
                for name, cell in row.items()
            }


def _speed(run: Run) -> float:
    return run.speedup.measured


# --- what came out --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Curve:
    """The speedup of a ratio by acceptance.

    Attributes:
        ratio: target over draft, in parameters.
        points: acceptances, ascending, with their speedups.
    """

    ratio: float
    points: tuple[tuple[float, float], ...]

    def reaches(self, speedup: float) -> float | None:
        """The acceptance from which it is that fast; None if it never is."""
        for (before, low), (after, high) in pairwise(self.points):
            if low >= speedup:
                return before
            if high >= speedup:
                return before + (after - before) * (speedup - low) / (high - low)
        return None

    def between(self, other: Curve, ratio: float) -> Curve:
        """The curve of a ratio between both, interpolated over the logarithm of the ratio."""
        share = math.log(ratio / self.ratio) / math.log(other.ratio / self.ratio)
        points = (
            (at, (1 - share) * mine + share * theirs)
            for (at, mine), (_, theirs) in zip(self.points, other.points, strict=True)
        )
        return Curve(ratio, tuple(points))


def _curves(rows: Rows) -> list[Curve]:
    """Of each ratio, ascending."""
    points: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        point = number(row["acceptance"]), number(row["speedup"])
        points.setdefault(str(row["ratio"]), []).append(point)
    return [Curve(float(ratio.rstrip("×")), tuple(each)) for ratio, each in points.items()]


def _conclude(rows: Rows) -> str:
    curves = _curves(rows)
    typical = {curve.ratio: dict(curve.points)[_TYPICAL] for curve in curves}
    pays = [ratio for ratio, speedup in typical.items() if speedup > 1]
    least = min(pays, default=math.inf)
    answer = f"No, {least:g}× is enough" if least < _ASKED else "Yes"
    error = statistics.median(number(row["error"]) for row in rows)
    return (
        f"{answer}, if {percent(_TYPICAL)} of tested drafts are accepted: drafts "
        f"{_listed(f'{ratio:g}×' for ratio in typical)} smaller than the target then run at "
        f"{_listed(f'{speedup:.2f}×' for speedup in typical.values())} autoregression. "
        f"They pay from an acceptance of {_listed(map(_from, curves))} on. Medians of the targets "
        f"at the fastest K, with random weights and imposed acceptance; the cost model's median "
        f"error is {percent(error, 1)}."
    )


def _from(curve: Curve) -> str:
    found = curve.reaches(1.0)
    return "none" if found is None else percent(found)


def _listed(texts: Iterable[str]) -> str:
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last


def _paper(rows: Rows) -> list[Mark]:
    """The paper's speedups, at the acceptance that its ratio needs for them here."""
    for smaller, larger in pairwise(_curves(rows)):
        if smaller.ratio <= _PAPER_RATIO < larger.ratio:
            curve = smaller.between(larger, _PAPER_RATIO)
            return [
                Mark(at, speedup, f"the paper, {_PAPER_RATIO}×, {tokens} tokens: {speedup}×")
                for tokens, speedup in _PAPER.items()
                if (at := curve.reaches(speedup)) is not None
            ]
    return []


def _of_trace(trace: Trace) -> Mark | None:
    """A visitor's race."""
    lane = trace.speculative
    if lane is None or lane.acceptance_rate is None or trace.speedup is None:
        return None
    draft = trace.pair.get("block" if trace.drafts_blocks else "draft") or {}
    large, small = (about.get("parameters") for about in (trace.pair["target"], draft))
    ratio = f", {large / small:.0f}× smaller" if large and small else ""
    name = f"the race above{ratio}: {trace.speedup:.2f}×"
    return Mark(lane.acceptance_rate, trace.speedup, name)


STUDY = Study(
    name="ratio",
    title="How small a draft",
    question="Must the draft be at least ten times smaller than the target?",
    needs="PyTorch, to make 22 models with random weights, once",
    seconds=600,
    columns=(
        Column("ratio", "Draft smaller by"),
        Column("acceptance", "Imposed acceptance", "%", 0),
        Column("speedup", "Speedup at the fastest K", "×"),
        Column("length", "Fastest K", digits=0),
        Column("lowest", "Lowest of the targets", "×"),
        Column("highest", "Highest", "×"),
        *(Column(name, name, "×") for name in TARGETS),
        *(Column(f"k{length}", f"K = {length}", "×") for length in LENGTHS),
        Column("predicted", "Predicted", "×"),
        Column("error", "Median error of the model", "%", 1),
    ),
    chart=Chart(
        kind="lines",
        x="acceptance",
        y=("speedup",),
        series="ratio",
        whiskers=("lowest", "highest"),
        level=even,
        marks=_paper,
        of_trace=_of_trace,
        reading="Random weights, imposed acceptance. Lines are medians of the targets at the "
        "fastest K, whiskers reach from the slowest target to the fastest; above the dashed line "
        "drafting pays. The paper’s speedups are placed where a draft 4.3× smaller, as its own, "
        "reaches them here; the acceptance of its pair is not known.",
    ),
    measure=_measure,
    conclude=_conclude,
)
