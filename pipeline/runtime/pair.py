"""A pair's two models, compiled for one cache policy, with their measured costs."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from pipeline.decoding.economics import AcceptanceStats, Costs
from pipeline.runtime.block import OVBlockModel
from pipeline.runtime.model import OVModel


def measure_costs(
    target: OVModel, draft: OVModel | None, block: OVBlockModel | None = None
) -> Costs:
    """Measures a pair's forward passes, in seconds. Without a draft model, drafting is free."""
    return Costs(
        draft.forward_times()[0][0] if draft else 0.0,
        *target.forward_times(),
        block.block_seconds() if block else 0.0,
    )


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
        self._measuring = Lock()
        self._costs: Costs | None = None
        for model in (target, draft, *([block] if block else [])):
            model.warm_up()
        self.exact_widths = target.exact_widths(text)

    @property
    def costs(self) -> Costs:
        """Measured on first use, since it takes time and few requests need it."""
        with self._measuring:
            if self._costs is None:
                self._costs = measure_costs(self.target, self.draft, self.block)
            return self._costs
