"""Figures of a trace that are more than a property: by part, by step, by position, by model.

Depends on the record and on the economics of speculation; not on how figures are shown.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import mul
from typing import Literal

from pipeline.decoding.economics import AcceptanceRate, CostModel, Costs
from pipeline.decoding.events import AUTOREGRESSIVE, SPECULATIVE, Origin
from pipeline.environment import PoolUse
from pipeline.trace.record import COMPARABLE, Lane, StepRecord, Trace
from pipeline.words import counted

TESTED = 20  # drafts; fewer say too little about an acceptance rate
BIN = 20  # per cent of confidence
NO_DIFFERENCE = 0.05  # a ratio this close to 1 counts as none

_Z = 1.96  # of a 95 % interval
_FAR_OUT = 3.0  # interquartile ranges above the upper quartile (Tukey's "far out")


# --- time -----------------------------------------------------------------------------------------


def seconds_by_part(lane: Lane) -> dict[str, float]:
    """The lane's time by part: prefill, draft, verify, other."""
    return {
        "prefill": lane.prefill_s,
        "draft": math.fsum(step.draft_s for step in lane.steps),
        "verify": math.fsum(step.verify_s for step in lane.steps),
        "other": math.fsum(step.other_s for step in lane.steps),
    }


@dataclass(frozen=True, slots=True)
class LaneProgress:
    """A lane at one moment.

    Attributes:
        time_s: its clock.
        decode_s: seconds of decoding so far, prefill apart.
        tokens: emitted so far.
    """

    time_s: float
    decode_s: float
    tokens: int

    @property
    def tokens_per_second(self) -> float | None:
        return self.tokens / self.decode_s if self.decode_s else None


def progress(lane: Lane) -> list[LaneProgress]:
    """The lane after prefill, and after each step."""
    clock = [lane.prefill_s, *(step.time_s for step in lane.steps)]
    decode_s = accumulate((step.seconds for step in lane.steps), initial=0.0)
    tokens = accumulate(map(len, lane.emitted), initial=0)
    return [*map(LaneProgress, clock, decode_s, tokens)]


def break_even_s(trace: Trace, lane: Lane) -> list[float]:
    """Seconds that each step's tokens take autoregressively; empty without that lane."""
    step_s = trace.autoregressive.median_step_s if trace.autoregressive else None
    return [] if step_s is None else [len(tokens) * step_s for tokens in lane.emitted]


def outlier_limit(values: Sequence[float]) -> float | None:
    """The limit of a plot's axis that cuts off far outliers; None if there are none."""
    if len(values) < 4:
        return None
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    limit = high + _FAR_OUT * max(high - low, 0.1 * high)
    kept = [value for value in values if value <= limit]
    return 1.1 * max(kept) if len(kept) < len(values) else None


def not_compared(trace: Trace) -> str:
    """Why the lanes of a trace have no speedup that means anything; "" if they have one."""
    if len(trace.lanes) == 1:
        return "one method alone, with nothing to compare"
    if trace.speedup is None:
        return f"one method emitted fewer than {COMPARABLE} tokens"
    if trace.speculative and not trace.speculative.drafted:
        return "nothing was drafted, so both methods did the same"
    return ""


def more_cpu(trace: Trace) -> float | None:
    """How many times the CPU time of an autoregressive token a speculative one takes, where that is
    more; None where it is not, or is not known.
    """
    if not_compared(trace):
        return None
    once, now = (trace.costs[name].cpu_s for name in (AUTOREGRESSIVE, SPECULATIVE))
    return now / once if once and now and now / once > 1 + NO_DIFFERENCE else None


def outcome(speedup: float) -> Literal["win", "loss", "even"]:
    """Whether speculation is faster, slower, or neither."""
    if abs(speedup - 1) <= NO_DIFFERENCE:
        return "even"
    return "win" if speedup > 1 else "loss"


def speedup_interval(trace: Trace) -> tuple[float, float] | None:
    """The 95 % interval of a trace's speedup, from how unevenly its steps took. The texts are
    given, so that only times vary: each from the mean of the steps that drafted as many tokens. No
    more than the tokens of a target pass can be gained. None where there is no speedup.
    """
    slow, fast, speedup = trace.autoregressive, trace.speculative, trace.speedup
    if not (slow and fast and speedup and fast.block_efficiency):
        return None
    factor = math.exp(math.hypot(_log_error(slow), _log_error(fast)))
    return speedup / factor, max(speedup, min(speedup * factor, fast.block_efficiency))


def _log_error(lane: Lane) -> float:
    """Half the 95 % interval of the logarithm of a lane's decoding time; infinite if too few steps
    are alike. Wider by 2 / degrees of freedom, near Student's quantiles.
    """
    alike: dict[int, list[float]] = {}
    for step, seconds in zip(lane.steps, lane.undisturbed, strict=True):
        alike.setdefault(len(step.drafted), []).append(seconds)
    free = len(lane.steps) - len(alike)
    if free < 1:
        return math.inf
    squares = math.fsum(
        statistics.variance(each) * (len(each) - 1) for each in alike.values() if len(each) > 1
    )
    deviation = math.sqrt(squares / free * len(lane.steps)) / math.fsum(lane.undisturbed)
    return _Z * (1 + 2 / free) * deviation


def contradicts(model: CostModel, speedup: float | None) -> bool:
    """Whether the medians of a run gain where the run itself lost, or the reverse: then neither
    explains the other.
    """
    return speedup is not None and {outcome(model.speedup), outcome(speedup)} == {"win", "loss"}


# --- drafts ---------------------------------------------------------------------------------------

LOST = ("rejected", "unused")  # the keys of `yields` for drafts that were not emitted


def yields(lane: Lane) -> list[dict[str, int]]:
    """Counts of each step's tokens: emitted ones by origin, and the drafts that were `LOST`. Unused
    are drafts after the first rejection, or after the end.
    """
    counts = []
    for step, tokens in zip(lane.steps, lane.emitted, strict=True):
        origins = Counter(token.origin for token in tokens)
        rejected = step.tested - step.accepted
        accepted = sum(token.origin.kept for token in tokens)
        unused = len(step.drafted) - accepted - rejected
        emitted = {origin.value: origins[origin] for origin in Origin}
        counts.append({**emitted, "rejected": rejected, "unused": unused})
    return counts


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Drafted tokens that were tested, at least one, and those of them that were accepted."""

    tested: int
    accepted: int

    @property
    def rate(self) -> float:
        return self.accepted / self.tested

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the rate (Wilson 1927)."""
        weight = _Z**2 / self.tested
        centre = (self.rate + weight / 2) / (1 + weight)
        half = math.sqrt(weight * self.rate * (1 - self.rate) + weight**2 / 4) / (1 + weight)
        return min(self.rate, max(0.0, centre - half)), max(self.rate, min(1.0, centre + half))

    def evidence_under(self, threshold: float) -> float:
        """The evidence that tokens are accepted less often than `threshold`, in 0 … 1: the
        likelihood of these tests, averaged over all rates under it, over that at it. It may be
        looked at after every test: where tokens are accepted as often as the threshold or more, the
        chance that it ever reaches 1 / α is α at most (Ville 1939).
        """
        if threshold >= 1:
            return math.inf
        odds, chances = threshold / (1 - threshold), self.tested + 1
        # The terms of a binomial tail from accepted + 1, relative to its first.
        terms = (odds * (chances - k) / (k + 1) for k in range(self.accepted + 1, chances))
        return sum(accumulate(terms, mul, initial=1.0)) / (self.accepted + 1)


def acceptance_by_position(steps: Sequence[StepRecord]) -> list[Acceptance]:
    """Acceptance at each position of the draft, up to the last at which a token was tested."""
    longest = max((step.tested for step in steps), default=0)
    return [
        Acceptance(
            tested=sum(step.tested > place for step in steps),
            accepted=sum(step.accepted > place for step in steps),
        )
        for place in range(longest)
    ]


def acceptance_by_confidence(lane: Lane) -> dict[int, Acceptance]:
    """Acceptance by the draft model's probability of the token, in bins of `BIN` per cent that
    are named by their lower ends; those with a test, in ascending order.
    """
    tested: Counter[int] = Counter()
    accepted: Counter[int] = Counter()
    for step in lane.steps:
        for place in range(step.tested):
            if (confidence := step.confidence(place)) is not None:
                low = min(int(100 * confidence) // BIN * BIN, 100 - BIN)
                tested[low] += 1
                accepted[low] += step.accepted > place
    return {low: Acceptance(tested[low], accepted[low]) for low in sorted(tested)}


@dataclass(frozen=True, slots=True)
class ResidualToken:
    """A token that may replace a rejected one. A probability that was not recorded is None.

    Attributes:
        target, draft: the models' probabilities.
        residual: max(0, target - draft).
        share: its share of the residuals of all recorded tokens; None if these are 0.
    """

    token: int
    target: float | None
    draft: float | None
    residual: float
    share: float | None


def residual(target: Mapping[int, float], draft: Mapping[int, float]) -> list[ResidualToken]:
    """The distribution that replaces a rejected token, as far as its probabilities are recorded:
    (target - draft), positive part, normalised. The likeliest token first.
    """
    excess = {
        token: max(0.0, target.get(token, 0.0) - draft.get(token, 0.0))
        for token in {**target, **draft}
    }
    whole = sum(excess.values())
    return [
        ResidualToken(
            token, target.get(token), draft.get(token), rest, rest / whole if whole else None
        )
        for token, rest in sorted(excess.items(), key=lambda item: -item[1])
    ]


# --- economics ------------------------------------------------------------------------------------


def measured(trace: Trace, errors: float = 0.0) -> CostModel | None:
    """The cost model of a run, from its medians and its acceptance by place; None where a lane has
    no steps, or fewer than `TESTED` drafts were tested.

    Verification costs a forward pass, by its tokens as measured before the run, and what this run's
    rounds took beyond that; no less than a step. Where no passes were measured, every K costs as
    much as this run's.

    Args:
        errors: standard errors by which medians are taken in favour of drafting: those of drafting
            and of verification lower, that of a step higher.
    """
    slow, fast = trace.autoregressive, trace.speculative
    if not (slow and fast and fast.acceptance_rate is not None and fast.tested >= TESTED):
        return None
    rounds = [step for step in fast.steps if step.drafted]
    step_s = _median([step.seconds for step in slow.steps], errors) if slow.steps else 0.0
    if not step_s:
        return None
    curve = Costs(0.0, trace.pair.get("pass_costs") or (1.0,))
    beyond = [(r.seconds - r.draft_s) / step_s - curve.of_pass(len(r.drafted) + 1) for r in rounds]
    rest = _median(beyond, -errors)
    verify = (1.0, *(max(1.0, cost + rest) for cost in curve.verify[1:] or curve.verify))
    if trace.drafts_blocks:
        draft, block = 0.0, _median([r.draft_s for r in rounds], -errors) / step_s
    else:
        draft = _median([r.draft_s / len(r.drafted) for r in rounds], -errors) / step_s
        block = 0.0
    length = statistics.median_high(len(r.drafted) for r in rounds)
    costs = Costs(draft, verify, block_draft=block)
    return CostModel(fast.acceptance_rate, costs, length, _powers(fast))


def _powers(lane: Lane) -> Sequence[float]:
    """By place, the power of the lane's acceptance rate that is its acceptance there. A place with
    few tests is more like the one before it.
    """
    mean = chance = lane.acceptance_rate or 0.0
    if not 0 < mean < 1:
        return (1.0,)
    powers = []
    for place in acceptance_by_position(lane.steps):
        rate = AcceptanceRate()
        rate.add(place.accepted, place.tested)
        chance = rate.estimate(chance)
        powers.append(math.log(chance) / math.log(mean))
    return powers


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The low end of the median's 95 % interval, the median, and the high end."""
    low, middle, high = (_median(values, errors) for errors in (-_Z, 0.0, _Z))
    return low, middle, high


def _median(values: Sequence[float], errors: float) -> float:
    """The median, or an end of its interval: the value so many standard errors of its rank above
    it, whatever the distribution.
    """
    ordered, last = sorted(values), len(values) - 1
    place = min(max(0.0, last / 2 + errors * math.sqrt(len(values)) / 2), last)
    return (ordered[math.floor(place)] + ordered[math.ceil(place)]) / 2


def not_predicted(trace: Trace) -> str:
    """Why there is no `prediction` for a trace; "" if there is one."""
    slow, fast = trace.autoregressive, trace.speculative
    if not (slow and fast):
        return "one method alone, with nothing to compare"
    if any(lane.finish is None for lane in trace.lanes.values()):
        return "the race goes on"
    if not fast.drafted:
        return "nothing was drafted, so there is no cost of a draft"
    if fast.tested < TESTED:
        return f"{counted(fast.tested, 'drafted token')} tested, and it needs {TESTED}"
    if trace.speedup is None or measured(trace) is None:
        return f"one method emitted fewer than {COMPARABLE} tokens"
    return ""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Speculation on the measured costs of a run, at any acceptance and draft length.

    Attributes:
        model: the run's, or `at` another acceptance and length.
        token_s: seconds of an autoregressive token in this run.
        other: share of a round after drafting that is not the target's forward pass.
    """

    model: CostModel
    token_s: float
    other: float

    def at(self, acceptance: float, length: int) -> Prediction:
        return replace(self, model=replace(self.model, acceptance=acceptance, length=length))

    @property
    def seconds_per_token(self) -> float:
        return self.token_s / self.model.speedup

    @property
    def seconds_by_part(self) -> dict[str, float]:
        """The seconds of a token by part: draft, verify, other."""
        verify = self.model.costs.of_pass(self.model.length + 1)
        costs = {
            "draft": self.model.cost - verify,
            "verify": (1 - self.other) * verify,
            "other": self.other * verify,
        }
        step_s = self.token_s / self.model.block_efficiency
        return {part: cost * step_s for part, cost in costs.items()}

    @property
    def shares(self) -> dict[str, float]:
        """The share of the time by part: draft, verify, other."""
        return {part: each / self.seconds_per_token for part, each in self.seconds_by_part.items()}


def prediction(trace: Trace) -> Prediction | None:
    """The prediction at the run's own acceptance and draft length; None where there is a reason
    why `not_predicted`.
    """
    model, slow, fast = measured(trace), trace.autoregressive, trace.speculative
    if not_predicted(trace) or not (model and slow and fast and slow.seconds_per_token):
        return None
    rounds = [step for step in fast.steps if step.drafted]
    after_s = math.fsum(step.verify_s + step.other_s for step in rounds)
    other = math.fsum(step.other_s for step in rounds) / after_s if after_s else 0.0
    return Prediction(model, slow.seconds_per_token, other)


def token_seconds_by_part(lane: Lane) -> dict[str, float]:
    """The lane's seconds per token by part: draft, verify, other. They add up to
    `Lane.seconds_per_token`; prefill is apart.
    """
    parts = {part: seconds for part, seconds in seconds_by_part(lane).items() if part != "prefill"}
    whole, each = math.fsum(parts.values()), lane.seconds_per_token or 0.0
    return {part: seconds / whole * each if whole else 0.0 for part, seconds in parts.items()}


# --- caches ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CacheUse:
    """One model's KV cache, after each step.

    Attributes:
        tokens, bytes: that it holds.
        blocks: that hold them; None where a cache has no blocks, or the trace lacks their size.
        rolled_back: tokens dropped at the end of the step; None where that was not recorded.
        pools: the model's blocks, those of the other lane included; None where a cache has none, or
            that was not recorded.
    """

    tokens: list[int]
    bytes: list[int]
    blocks: list[int] | None
    rolled_back: list[int] | None
    pools: list[PoolUse] | None = None

    @property
    def megabytes(self) -> list[float]:
        """The bytes in units of 1,000,000."""
        return [size / 1e6 for size in self.bytes]

    @property
    def rolled_back_so_far(self) -> list[int] | None:
        """Tokens dropped by each step and those before it; None where that was not recorded."""
        return None if self.rolled_back is None else [*accumulate(self.rolled_back)]


def cache_use(trace: Trace, lane: Lane) -> dict[str, CacheUse]:
    """The cache of the target, and that of the draft if it has one."""
    block = trace.pair.get("kv_block")
    caches = {}
    for model in ("target", "draft"):
        tokens, sizes, rolled_back = (
            [getattr(step, f"{model}_{name}") for step in lane.steps]
            for name in ("kv_len", "kv_bytes", "rolled_back")
        )
        if model == "target" or any(sizes):
            pools = [getattr(step, f"{model}_pool") for step in lane.steps]
            caches[model] = CacheUse(
                tokens,
                sizes,
                [math.ceil(count / block) for count in tokens] if block else None,
                None if None in rolled_back else rolled_back,
                None if None in pools else pools,
            )
    return caches
