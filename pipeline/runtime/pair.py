"""A pair's two models, compiled for one cache policy, with their measured costs."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from time import monotonic

from pipeline.decoding.economics import AcceptanceStats, Costs, Measurement
from pipeline.progress import Progress
from pipeline.runtime.block import TYPICAL_ROWS, OVBlockModel
from pipeline.runtime.model import OVModel

_ATTEMPTS = 3  # to measure undisturbed
_PATIENCE = 5.0  # seconds, after which no other attempt begins: no machine is always idle


def measure_costs(
    target: OVModel, draft: OVModel | None, block: OVBlockModel | None = None
) -> Measurement:
    """Measures a pair's forward passes. Without a draft model, drafting is free."""
    times = {model: model.forward_times() for model in (target, draft, block) if model}
    costs = Costs(
        draft=times[draft].seconds[0] if draft else 0.0,
        verify=times[target].seconds,
        switch=times[target].switch,
        block=times[block].seconds[TYPICAL_ROWS - 1] if block else 0.0,
    )
    return Measurement(costs, max(each.spread for each in times.values()))


class CompiledPair:
    """Both models, warmed up and shared by all runs with this policy.

    Args:
        target, draft: compiled for the same policy.
        block: the block draft, likewise, if there is one.
        note: the reason for another policy than the requested one; empty otherwise.
        text: token ids of any text, to compare the target's forward passes over it.

    Attributes:
        exact_widths: whether a token's logits are the same to the bit in forward passes of every
            number of tokens, here and now: a property of this machine's kernels.
        policy: of both models' caches.
        measured: the costs of forward passes, as measured last; None before.
        stats: acceptance statistics by way of verification, and then by drafter, of all generations
            with these models.
    """

    def __init__(
        self,
        target: OVModel,
        draft: OVModel,
        block: OVBlockModel | None = None,
        note: str = "",
        text: Sequence[int] = (),
    ) -> None:
        self.target, self.draft, self.block, self.note = target, draft, block, note
        self.policy = target.policy
        self.stats: dict[str, dict[str, AcceptanceStats]] = {}
        self.measured: Measurement | None = None
        for model in (target, draft, *([block] if block else [])):
            model.warm_up()
        self.exact_widths = target.exact_widths(text)

    @property
    def costs(self) -> Costs:
        """As measured last; measured on first use, since it takes time and few requests need it."""
        if self.measured is None:
            for _ in self.measure():
                pass
        assert self.measured
        return self.measured.costs

    @property
    def costs_known(self) -> bool:
        """Whether they were measured undisturbed, so that they need not be measured again."""
        return self.measured is not None and not self.measured.disturbed

    def measure(self) -> Generator[Progress, None, None]:
        """Measures the costs. If that is disturbed it is repeated, and the least disturbed
        measurement is used. Yields before each.
        """
        begin, tried = monotonic(), list[Measurement]()
        yield Progress("Measuring the costs of forward passes")
        while True:
            tried.append(measure_costs(self.target, self.draft, self.block))
            self.measured = min(tried, key=lambda each: each.spread)
            enough = len(tried) == _ATTEMPTS or monotonic() - begin > _PATIENCE
            if self.costs_known or enough:
                return
            yield Progress("Measuring the costs of forward passes again, since that was disturbed")
