"""Measures a pair at an imposed acceptance: whole rounds, and the passes that they consist of."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lab.imposed import Imposed, accepted_counts
from pipeline.decoding.drafters.model import MODEL
from pipeline.decoding.economics import CostModel, Costs
from pipeline.decoding.events import Event, Step
from pipeline.decoding.lanes import Lanes
from pipeline.decoding.sampling import SamplingParams

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.runtime.model import OVModel

_PROMPT = [*range(100, 164)]
_GREEDY = SamplingParams()
_STEPS = 3  # autoregressive, beside each run


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
