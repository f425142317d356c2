"""A pair's models, compiled for one cache policy, with their measured costs."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from time import monotonic

from pipeline.decoding.economics import AcceptanceStats, Costs, Measurement
from pipeline.errors import UserError
from pipeline.progress import Progress
from pipeline.runtime.block import TYPICAL_ROWS, OVBlockModel
from pipeline.runtime.model import OVModel

_ATTEMPTS = 3  # to measure undisturbed
_PATIENCE = 5.0  # seconds, after which no other attempt begins: not every machine gets idle
RETRY_AFTER = 60.0  # seconds; on a machine that is never idle, not every run shall wait


def measure_costs(
    target: OVModel, draft: OVModel | None, block_draft: OVBlockModel | None = None
) -> Measurement:
    """Measures a pair's forward passes. Without a draft model, drafting is free."""
    verify = target.forward_times()
    drafting = draft.forward_times((1,)) if draft else None
    blocks = block_draft.forward_times((TYPICAL_ROWS,)) if block_draft else None
    costs = Costs(
        draft=drafting.seconds[0] if drafting else 0.0,
        verify=verify.seconds,
        switch=verify.switch,
        block_draft=blocks.seconds[0] if blocks else 0.0,
    )
    measured = (each for each in (verify, drafting, blocks) if each)
    return Measurement(costs, max(each.spread for each in measured))


class CompiledPair:
    """The models, warmed up and shared by all runs with this policy.

    Args:
        target: compiled for the policy.
        draft, block_draft: likewise, if there is one.
        note: the reason for another policy than the requested one; empty otherwise.
        text: token ids of any text, to compare the target's forward passes over it.

    Attributes:
        exact_widths: whether a token's logits are the same to the bit in forward passes of every
            number of tokens, here and now: a property of this machine's kernels.
        policy: of the models' caches.
        measured: the costs of forward passes, as measured last; None before.
        stats: acceptance statistics by way of verification, and then by drafter, of all generations
            with these models.
    """

    def __init__(
        self,
        target: OVModel,
        draft: OVModel | None,
        block_draft: OVBlockModel | None = None,
        note: str = "",
        text: Sequence[int] = (),
    ) -> None:
        self.target, self.draft, self.block_draft, self.note = target, draft, block_draft, note
        self.policy = target.policy
        self.stats: dict[str, dict[str, AcceptanceStats]] = {}
        self.measured: Measurement | None = None
        self._measured_at = 0.0
        for model in (*self.models, *([block_draft] if block_draft else [])):
            model.warm_up()
        self.exact_widths = target.exact_widths(text)

    @property
    def models(self) -> tuple[OVModel, ...]:
        """The target, then the draft model if there is one."""
        return (self.target, self.draft) if self.draft else (self.target,)

    @property
    def required_draft(self) -> OVModel:
        """The draft model, for what needs one.

        Raises:
            UserError: there is none.
        """
        if self.draft is None:
            raise UserError("pair", "a target alone", "choose one with a draft model")
        return self.draft

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
        """Whether they need not be measured now: they were measured undisturbed, or were disturbed
        a moment ago.
        """
        if self.measured is None:
            return False
        return not self.measured.disturbed or monotonic() - self._measured_at < RETRY_AFTER

    def measure(self) -> Generator[Progress, None, None]:
        """Measures the costs. If that is disturbed it is repeated, and the least disturbed
        measurement is used. Yields before each.
        """
        begin, tried = monotonic(), list[Measurement]()
        yield Progress("Measuring the costs of forward passes")
        while True:
            tried.append(measure_costs(self.target, self.draft, self.block_draft))
            self.measured = min(tried, key=lambda each: each.spread)
            self._measured_at = monotonic()
            enough = len(tried) == _ATTEMPTS or self._measured_at - begin > _PATIENCE
            if enough or not self.measured.disturbed:
                return
            yield Progress("Measuring the costs of forward passes again, since that was disturbed")
