"""The economics of speculation: measured costs, acceptance rates and the expected speedup.

The expectation follows Leviathan et al. 2023 (arXiv 2211.17192, sections 3.1 and 3.3), with the
measured cost of verification. Costs are in seconds or in steps; a step is the target's forward pass
of one token.

Works on numbers; not on tokens or models. It uses plain floats, since some of this runs in every
round, and for so few numbers a call into NumPy takes longer than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, islice, repeat, zip_longest
from operator import mul

_PRECISION = 1e-9  # of a break-even acceptance

PRIOR_ACCEPTANCE = 0.6  # assumed before any test
PRIOR_WEIGHT = 5.0  # in tests; with less, a few rejections at first would end all drafting
_DECAY = 0.97  # factor on the weight of older tests, per test
_IDLE_DECAY = 0.998  # the same per step without a draft, so that drafting is tried again
_COST_DECAY = 0.9  # factor on the weight of older measurements of the draft cost
_MAX_COST_CHANGE = 2.0  # factor by which a single measurement may differ, else it is clipped
_CONFIDENCE_BINS = 10  # each with its own acceptance rate
_MAX_SPREAD = 0.25  # of measured times; on an idle machine they differ by a few percent


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a pair, all in seconds or all in steps.

    Attributes:
        draft: the cost of drafting one token.
        verify: the target's forward pass of 1, 2, … tokens; the first is an autoregressive step.
            A longer pass is assumed to cost as much as the last.
        block_draft: the cost of a block draft, of any length; 0 where there is none.
        switch: added when a forward pass has another number of tokens than the one before.
    """

    draft: float
    verify: Sequence[float]
    switch: float = 0.0
    block_draft: float = 0.0

    @property
    def in_steps(self) -> Costs:
        step = self.verify[0]
        verify = tuple(seconds / step for seconds in self.verify)
        return Costs(self.draft / step, verify, self.switch / step, self.block_draft / step)

    def of_pass(self, tokens: int) -> float:
        """The cost of the target's forward pass of that many tokens."""
        return self.verify[tokens - 1] if tokens <= len(self.verify) else self.verify[-1]

    def of_round(self, drafted: int, pad_to: int = 0) -> float:
        """The cost of a round that drafts that many tokens, and verifies them in a forward pass
        padded to `pad_to` tokens.
        """
        block_draft = self.block_draft if drafted else 0.0
        return block_draft + drafted * self.draft + self.of_pass(max(drafted + 1, pad_to))


@dataclass(frozen=True, slots=True)
class Measurement:
    """Measured costs.

    Attributes:
        costs: in seconds.
        spread: how much the times of like forward passes differ: the distance between their
            quartiles, as a share of their median.
    """

    costs: Costs
    spread: float

    @property
    def disturbed(self) -> bool:
        """Whether something else used the processor meanwhile."""
        return self.spread > _MAX_SPREAD


def expected_tokens(acceptance: Iterable[float]) -> list[float]:
    """The expected number of tokens that a round emits if it drafts 0, 1, 2, … tokens.

    Args:
        acceptance: for each drafted token, the probability that it is accepted if those before it
            are.

    Returns:
        [1, 1 + a1, 1 + a1 a2 + a1, …]: one token more than are expected to be accepted.
    """
    return [*accumulate(accumulate(acceptance, mul, initial=1.0))]


def best_length(
    tokens: Sequence[float],
    costs: Costs,
    lengths: Iterable[int],
    pad_to: int = 0,
    min_rate: float = 0.0,
) -> tuple[int, float]:
    """The draft length with the most expected tokens for its cost, and that rate.

    Args:
        tokens: expected of a draft of 0, 1, 2, … tokens.
        costs: of drafting and of verifying.
        lengths: the candidates in ascending order; the first wins a tie.
        pad_to: tokens that the verifying forward pass is padded to.
        min_rate: the rate that a length must exceed. If none does, 0 and this rate are returned.
    """
    best, best_rate = 0, min_rate
    for length in lengths:
        rate = tokens[length] / costs.of_round(length, pad_to)
        if rate > best_rate:
            best, best_rate = length, rate
    return best, best_rate


@dataclass(frozen=True, slots=True)
class CostModel:
    """The expected speedup over autoregression.

    Attributes:
        acceptance: a, the probability that a tested token is accepted, over all places of a draft.
        costs: in steps.
        length: K, tokens drafted in a round; 0 is autoregression.
        powers: of a, that are the probability at each place; beyond the last as there. At first 1:
            every place is alike. So a perfect draft is perfect at every place, and a useless one
            useless.
    """

    acceptance: float
    costs: Costs
    length: int
    powers: Sequence[float] = (1.0,)

    @property
    def draft(self) -> float:
        """c, the cost of drafting one token, or all K where one forward pass drafts them; in
        steps.
        """
        return self.costs.block_draft or self.costs.draft

    @property
    def verify(self) -> float:
        """v, the cost of verifying K tokens beyond that of a step; below 0 if it is less."""
        return self.costs.of_pass(self.length + 1) - 1

    @property
    def block_efficiency(self) -> float:
        """The expected number of tokens that a round emits: (1 - a^(K+1)) / (1 - a) where all
        places are alike.
        """
        return self._expected_tokens(self.length)[-1]

    @property
    def cost(self) -> float:
        """The cost of a round in steps: 1 + K c + v, or 1 + c + v with a block."""
        return self.costs.of_round(self.length)

    @property
    def speedup(self) -> float:
        return self.block_efficiency / self.cost

    @property
    def break_even(self) -> float | None:
        """The acceptance above which drafting K tokens, at least one, pays; None if none does."""
        low, high = 0.0, 1.0
        drafting = replace(self, length=max(1, self.length))
        if replace(drafting, acceptance=high).speedup < 1:
            return None
        while high - low > _PRECISION:  # the speedup grows with the acceptance
            middle = (low + high) / 2
            if replace(drafting, acceptance=middle).speedup < 1:
                low = middle
            else:
                high = middle
        return high

    def best_length(self, lengths: Iterable[int]) -> int:
        """The K among `lengths` with the highest speedup; the shortest wins a tie."""
        ascending = sorted(lengths)
        return best_length(self._expected_tokens(ascending[-1]), self.costs, ascending)[0]

    def _expected_tokens(self, length: int) -> list[float]:
        powers = islice(chain(self.powers, repeat(self.powers[-1])), length)
        return expected_tokens(self.acceptance**power for power in powers)

    def worst_part(self) -> str:
        """Which of "acceptance", "draft" and "verify" would gain most if it were ideal."""
        no_surcharge = tuple(min(cost, 1.0) for cost in self.costs.verify)
        ideals = {
            "acceptance": replace(self, acceptance=1.0),
            "draft": replace(self, costs=replace(self.costs, draft=0.0, block_draft=0.0)),
            "verify": replace(self, costs=replace(self.costs, verify=no_surcharge)),
        }
        return max(ideals, key=lambda part: ideals[part].speedup)


class AcceptanceRate:
    """How often tested tokens were accepted, as a running estimate."""

    def __init__(self) -> None:
        self._accepted = self._tested = 0.0

    def estimate(self, prior: float, weight: float = PRIOR_WEIGHT) -> float:
        """The rate, with a prior that has the weight of that many tests."""
        return (self._accepted + weight * prior) / (self._tested + weight)

    def add(self, accepted: float, tested: float) -> None:
        self._accepted += accepted
        self._tested += tested

    def decay(self, factor: float) -> None:
        """Reduces the weight of all tests so far."""
        self._accepted *= factor
        self._tested *= factor


class AcceptanceStats:
    """Acceptance rates of a drafter's tokens, by position in the draft and by confidence, and the
    costs of its rounds.

    An instance belongs to a pair and a drafter. It is kept across generations, so that the next one
    starts with its estimates. Recent tests have more weight.

    Args:
        costs: as measured.
        acceptance: assumed before any test, by position; beyond it, as at the position before.

    Attributes:
        costs: in steps; the draft cost follows recent rounds.
    """

    def __init__(self, costs: Costs, acceptance: Sequence[float] = ()) -> None:
        self._measured, self.costs = costs, costs.in_steps
        self._prior = acceptance
        self._positions = [AcceptanceRate() for _ in costs.verify[1:]]
        self._confidences = [AcceptanceRate() for _ in range(_CONFIDENCE_BINS)]

    @property
    def longest(self) -> int:
        """The most tokens of a draft."""
        return len(self._positions)

    def use_costs(self, measured: Costs) -> None:
        """Replaces the costs, unless this is the measurement that they are from."""
        if measured != self._measured:
            self._measured, self.costs = measured, measured.in_steps

    def by_position(self) -> list[float]:
        """The acceptance rate at each position of a draft, given that the tokens before it are
        accepted. At a position without tests or prior it is that of the position before.
        """
        chances, chance = [], PRIOR_ACCEPTANCE
        for rate, prior in zip_longest(self._positions, self._prior[: self.longest]):
            chance = rate.estimate(chance if prior is None else prior)
            chances.append(chance)
        return chances

    def by_confidence(self, confidence: float) -> float:
        """The acceptance rate of tokens with about this confidence, the drafter's probability."""
        index = _bin(confidence)
        return self._confidences[index].estimate((index + 0.5) / _CONFIDENCE_BINS)

    def update(self, accepted: int, drafted: int, confidences: Sequence[float]) -> None:
        """Adds the tests of one draft. An empty draft counts as a rejection."""
        for position in range(min(accepted + 1, max(drafted, 1))):
            _count(self._positions[position], position < accepted)
        for position, confidence in enumerate(confidences[: min(accepted + 1, drafted)]):
            _count(self._confidences[_bin(confidence)], position < accepted)

    def update_draft_cost(self, drafted: int, draft_s: float, verify_s: float, pad_to: int) -> None:
        """Updates the cost of a block, or else of drafting one token, by a draft of so many tokens,
        relative to the forward pass of `pad_to` tokens that followed at the same speed of the
        machine. A single measurement changes little.
        """
        draft = draft_s / (verify_s / self.costs.verify[pad_to - 1])
        if self.costs.block_draft:
            followed = _follow(self.costs.block_draft, draft)
            self.costs = replace(self.costs, block_draft=followed)
        else:
            self.costs = replace(self.costs, draft=_follow(self.costs.draft, draft / drafted))

    def decay(self) -> None:
        """Reduces the weight of all tests, after a step without a test."""
        for rate in self._positions:
            rate.decay(_IDLE_DECAY)


def _follow(known: float, measured: float) -> float:
    """The known cost, moved towards a measurement."""
    clipped = min(max(measured, known / _MAX_COST_CHANGE), known * _MAX_COST_CHANGE)
    return known + (1 - _COST_DECAY) * (clipped - known)


def _count(rate: AcceptanceRate, accepted: bool) -> None:
    rate.decay(_DECAY)
    rate.add(accepted, 1)


def _bin(confidence: float) -> int:
    return min(int(confidence * _CONFIDENCE_BINS), _CONFIDENCE_BINS - 1)
