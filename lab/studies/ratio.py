"""How much smaller than the target a draft should be: the speedup by ratio, acceptance and K.

Targets and drafts have random weights, and the acceptance is imposed (`lab.imposed`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lab.imposed import Imposed, accepted_counts
from lab.result import Chart, Column, Mark, Result, Row, Rows, even
from lab.shapes import SHAPES, draft_of, random_model
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
class Run:
    """What was measured of a target with one of its drafts, at an acceptance and a K.

    Attributes:
        measured, predicted: the speedup over autoregressive decoding, as it is and as the cost
            model has it.
    """

    target: str
    ratio: int
    acceptance: float
    length: int
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Of the predicted speedup, as a share of the measured one; not negative."""
        return abs(self.predicted / self.measured - 1)


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

    def speedups(
        self, length: int, acceptances: Sequence[float], so_far: Result
    ) -> Generator[Result, None, tuple[list[tuple[float, float]], Result]]:
        """Measures a run at each acceptance with one draft length.

        Autoregressive steps and single passes are measured between the runs. Their medians are
        what all of these runs are compared with.

        Returns:
            the measured and the predicted speedups; and the result, further by as many runs.
        """
        per_token, steps, passes = list[float](), list[float](), list[tuple[float, float, float]]()
        for acceptance in acceptances:
            rounds = self._speculative(length, acceptance)
            emitted = statistics.mean(len(each.tokens) for each in rounds)
            per_token.append(statistics.median(each.seconds for each in rounds) / emitted)
            lane = Lanes(target=self._target).autoregressive(_PROMPT, _GREEDY, _STEPS + 1)
            steps += [each.seconds for each in _after_the_first(lane, _STEPS)]
            passes.append(self._single_passes(length))
            so_far = so_far.measured()
            yield so_far
        step = statistics.median(steps)
        one, verify, draft = map(statistics.median, zip(*passes, strict=True))
        costs = Costs(draft, (one, *[verify] * length)).in_steps  # no pass is in between
        predicted = (CostModel(each, costs, length).speedup for each in acceptances)
        measured = (step / seconds for seconds in per_token)
        return [*zip(measured, predicted, strict=True)], so_far

    def _speculative(self, length: int, acceptance: float) -> list[Step]:
        planned = accepted_counts(acceptance, length, self._rounds, self._rng)
        lanes = Lanes(target=self._target, draft=self._draft, verify=Imposed([0, *planned]))
        budget = (length + 1) * (len(planned) + 2)  # never reached: it would cut the last draft
        lane = lanes.speculative(_PROMPT, _GREEDY, budget, MODEL.name, length)
        return _after_the_first(lane, len(planned))

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
    steps = (event for event in lane if isinstance(event, Step))
    return [*islice(steps, count + 1)][1:]


def _measure(setup: Setup) -> Generator[Result, None, None]:
    folders: dict[str, tuple[Path, dict[int, Path]]] = {}
    for name in TARGETS:
        target, drafts = SHAPES[name], dict[int, Path]()
        for ratio in RATIOS:
            drafts[ratio] = yield from random_model(setup, draft_of(target.parameters / ratio))
        folders[name] = (yield from random_model(setup, target)), drafts
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
                speedups, result = yield from bench.speedups(length, acceptances, result)
                for acceptance, (speed, predicted) in zip(acceptances, speedups, strict=True):
                    runs.append(Run(name, ratio, acceptance, length, speed, predicted))
            result = replace(result, rows=tuple(rows_of(runs)))
            yield result


def rows_of(runs: Sequence[Run]) -> Iterator[Row]:
    """A row for each ratio and acceptance, over all targets that are measured."""
    groups: dict[tuple[int, float], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.ratio, run.acceptance), []).append(run)
    for (ratio, acceptance), here in groups.items():
        best: dict[str, Run] = {}
        by_length: dict[int, list[float]] = {}
        for run in here:
            best[run.target] = max(best.get(run.target, run), run, key=lambda each: each.measured)
            by_length.setdefault(run.length, []).append(run.measured)
        medians = {length: statistics.median(each) for length, each in by_length.items()}
        speeds = {name: run.measured for name, run in best.items()}
        cells = {
            "acceptance": acceptance,
            "speedup": statistics.median(speeds.values()),
            "lowest": min(speeds.values()),
            "highest": max(speeds.values()),
            "predicted": statistics.median(run.predicted for run in best.values()),
            "error": statistics.median(run.error for run in here),
            **speeds,
            **{f"k{length}": speed for length, speed in medians.items()},
        }
        row: dict[str, str | float] = {name: round(cell, _DIGITS) for name, cell in cells.items()}
        yield row | {"ratio": f"{ratio}×", "length": max(medians, key=medians.__getitem__)}


# --- what came out --------------------------------------------------------------------------------


Curve = dict[float, float]  # the speedup of a ratio by acceptance, ascending


def _curves(rows: Rows) -> dict[float, Curve]:
    """By ratio, ascending."""
    curves: dict[float, Curve] = {}
    for row in rows:
        curve = curves.setdefault(float(row["ratio"].rstrip("×")), {})
        curve[row["acceptance"]] = row["speedup"]
    return curves


def _reaches(curve: Curve, speedup: float) -> float | None:
    """The acceptance from which it is that fast; None if it never is."""
    for (before, low), (after, high) in pairwise(curve.items()):
        if low >= speedup:
            return before
        if high >= speedup:
            return before + (after - before) * (speedup - low) / (high - low)
    return None


def _conclude(rows: Rows) -> str:
    curves = _curves(rows)
    typical = {ratio: curve[_TYPICAL] for ratio, curve in curves.items()}
    pays = [ratio for ratio, speedup in typical.items() if speedup > 1]
    least = min(pays, default=math.inf)
    answer = f"No, {least:g}× is enough" if least < _ASKED else "Yes"
    error = statistics.median(row["error"] for row in rows)
    return (
        f"{answer}, if {percent(_TYPICAL)} of tested drafts are accepted: drafts "
        f"{_listed(f'{ratio:g}×' for ratio in typical)} smaller than the target then run at "
        f"{_listed(f'{speedup:.2f}×' for speedup in typical.values())} autoregression. "
        f"They pay from an acceptance of {_listed(map(_from, curves.values()))} on. Medians of the "
        f"targets at the fastest K, with random weights and imposed acceptance; the cost model's "
        f"median error is {percent(error, 1)}."
    )


def _from(curve: Curve) -> str:
    found = _reaches(curve, 1.0)
    return "none" if found is None else percent(found)


def _listed(texts: Iterable[str]) -> str:
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last


def _paper(rows: Rows) -> list[Mark]:
    """The paper's speedups, at the acceptance that its ratio needs for them here: on the curve
    between those of two ratios, interpolated over the logarithm of the ratio.
    """
    for (ratio, smaller), (next_ratio, larger) in pairwise(_curves(rows).items()):
        if ratio <= _PAPER_RATIO < next_ratio:
            share = math.log(_PAPER_RATIO / ratio) / math.log(next_ratio / ratio)
            curve = {at: (1 - share) * speed + share * larger[at] for at, speed in smaller.items()}
            return [
                Mark(at, speedup, f"the paper, {_PAPER_RATIO}×, {tokens} tokens: {speedup}×")
                for tokens, speedup in _PAPER.items()
                if (at := _reaches(curve, speedup)) is not None
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
