"""A pair's two models, compiled for one kind of cache, and what is known of their runs."""

from __future__ import annotations

from dataclasses import replace
from threading import Lock

from pipeline.decoding.costs import Costs
from pipeline.decoding.draft_length import Experience
from pipeline.decoding.drafters import DrafterKind
from pipeline.runtime.kv_cache import KVCacheKind
from pipeline.runtime.model import OVModel


class CompiledPair:
    """Warm, and shared by all runs with these caches.

    Args:
        target, draft: as compiled; they are warmed here.
        kv_cache: how they keep their keys and values.
        note: why that is not what was asked for; empty if it is.
    """

    def __init__(
        self, target: OVModel, draft: OVModel, kv_cache: KVCacheKind, note: str = ""
    ) -> None:
        self.target, self.draft = target, draft
        self.kv_cache, self.note = kv_cache, note
        self._measuring = Lock()
        self._costs: Costs | None = None
        self._experiences: dict[DrafterKind, Experience] = {}
        for model in (target, draft):
            model.warm()

    @property
    def costs(self) -> Costs:
        """Measured when first asked for: it takes a while, and few need it."""
        with self._measuring:
            if self._costs is None:
                self._costs = Costs(self.draft.run_times()[0][0], *self.target.run_times())
            return self._costs

    def experience(self, drafter: DrafterKind) -> Experience:
        """Of that drafter with these caches, so far."""
        if drafter not in self._experiences:
            free = drafter == "lookup"
            costs = replace(self.costs, draft=0.0) if free else self.costs
            self._experiences[drafter] = Experience(costs)
        return self._experiences[drafter]
