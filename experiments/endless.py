"""A pair whose answers do not end by themselves, so that all have the same length."""

from __future__ import annotations

from dataclasses import replace

from pipeline.decoding.lanes import Lanes
from pipeline.decoding.memory import Memory
from pipeline.dolly import Dolly
from pipeline.request import Request


class EndlessDolly(Dolly):
    """Writes on after the end key, until the budget is used up."""

    def lanes(self, request: Request, memory: Memory | None = None) -> Lanes:
        return replace(super().lanes(request, memory), end_ids=frozenset())
