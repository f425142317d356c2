"""Answers that do not end by themselves, so that all have the same length."""

from __future__ import annotations

from dataclasses import replace

from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.lanes import Lanes
from pipeline.dolly import Dolly
from pipeline.request import Request


def endless(lanes: Lanes) -> Lanes:
    """Decoders that go on after the end key, until the budget is used up."""
    return replace(lanes, end_ids=frozenset())


class EndlessDolly(Dolly):
    """A pair whose answers are all `endless`."""

    def lanes(self, request: Request, memory: AnswerMemory | None = None) -> Lanes:
        return endless(super().lanes(request, memory))
