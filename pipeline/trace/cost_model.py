"""What speculation is expected to gain (Leviathan et al. 2023, arXiv 2211.17192, with verification
at its price): a model of a few numbers, and those numbers as a trace measured them.

Time is counted in autoregressive steps. A round that drafts K tokens costs 1 + K c + v and yields
(1 - a^(K+1)) / (1 - a) tokens, if each tested draft passes with the same chance a.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pipeline.trace.record import Trace

_PRECISE = 1e-9  # of a break-even acceptance


@dataclass(frozen=True, slots=True)
class CostModel:
    """
    Attributes:
        acceptance: a, the chance that a tested draft passes.
        draft: c, drafting one token; steps.
        verify: v, what all but drafting takes beyond a step; steps. Below 0 if it takes less.
        length: K, tokens drafted in a round.
    """

    acceptance: float
    draft: float
    verify: float
    length: int

    @property
    def block_efficiency(self) -> float:
        """Tokens expected of a round."""
        return sum(self.acceptance**place for place in range(self.length + 1))

    @property
    def cost(self) -> float:
        """A round's, in steps. One that drafts nothing is a step."""
        return 1 + self.length * self.draft + self.verify if self.length else 1.0

    @property
    def speedup(self) -> float:
        return self.block_efficiency / self.cost

    @property
    def break_even(self) -> float | None:
        """The acceptance from which on K drafted tokens pay; None if not even 1 is enough."""
        low, high = 0.0, 1.0
        if replace(self, acceptance=high).speedup < 1:
            return None
        while high - low > _PRECISE:  # the yield grows with the acceptance
            middle = (low + high) / 2
            if replace(self, acceptance=middle).speedup < 1:
                low = middle
            else:
                high = middle
        return high

    def best_length(self, lengths: Iterable[int]) -> int:
        """Of `lengths`, the K that gains most; the shortest of equals. v is taken as it is at this
        K for every other.
        """
        return max(sorted(lengths), key=lambda length: replace(self, length=length).speedup)

    def worst_part(self) -> str:
        """Which of "acceptance", "draft" and "verify" would gain most if it were ideal."""
        ideals = {"acceptance": 1.0, "draft": 0.0, "verify": min(0.0, self.verify)}
        # `replace` by a name that is not spelled out
        gains = {part: replace(self, **{part: ideal}).speedup for part, ideal in ideals.items()}  # type: ignore[arg-type]
        return max(gains, key=gains.__getitem__)


def measured(trace: Trace) -> CostModel | None:
    """The model with the medians of a run; None where it made no steps of both kinds, or tested
    nothing.
    """
    slow, fast = trace.autoregressive, trace.speculative
    if not (slow and fast and slow.steps and fast.acceptance_rate is not None):
        return None
    step_s = statistics.median(step.seconds for step in slow.steps)
    rounds = [step for step in fast.steps if step.drafted]
    if not step_s:
        return None
    return CostModel(
        acceptance=fast.acceptance_rate,
        draft=statistics.median(r.draft_s / len(r.drafted) for r in rounds) / step_s,
        verify=statistics.median(r.seconds - r.draft_s for r in rounds) / step_s - 1,
        length=statistics.median_high(len(r.drafted) for r in rounds),
    )
