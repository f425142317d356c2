"""A pair's two models, compiled for one cache policy, and what was measured of them."""

from __future__ import annotations

from dataclasses import replace
from threading import Lock

from pipeline.decoding.costs import Costs
from pipeline.decoding.draft_length import Experience
from pipeline.decoding.drafters import DrafterKind
from pipeline.runtime.model import OVModel


class CompiledPair:
    """Warmed up, and shared by all runs with this policy.

    Args:
        target, draft: compiled for the same policy.
        note: why it is not the policy that was asked for; empty if it is.

    Attributes:
        policy: of both models' caches.
    """

    def __init__(self, target: OVModel, draft: OVModel, note: str = "") -> None:
        self.target, self.draft, self.note = target, draft, note
        self.policy = target.policy
        self._measuring = Lock()
        self._costs: Costs | None = None
        self._experiences: dict[DrafterKind, Experience] = {}
        for model in (target, draft):
            model.warm_up()

    @property
    def costs(self) -> Costs:
        """Measured when first asked for: it takes a while, and few need it."""
        with self._measuring:
            if self._costs is None:
                self._costs = Costs(self.draft.forward_times()[0][0], *self.target.forward_times())
            return self._costs

    def experience(self, drafter: DrafterKind) -> Experience:
        """Of that drafter with these caches, so far."""
        if drafter not in self._experiences:
            free = drafter == "lookup"
            costs = replace(self.costs, draft=0.0) if free else self.costs
            self._experiences[drafter] = Experience(costs)
        return self._experiences[drafter]
