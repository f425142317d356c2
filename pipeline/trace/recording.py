"""The trace of a run while it grows, from the events of its lanes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.decoding.events import Event, Finish, FinishReason
from pipeline.environment import PoolUse
from pipeline.trace.record import Token, Trace
from pipeline.trace.recorder import LaneRecorder


@dataclass(frozen=True, slots=True)
class Update:
    """An event of a lane. `tokens` are those that a step emitted, with their text; `pools` are the
    blocks of the caches after it.
    """

    lane: str
    event: Event
    tokens: tuple[Token, ...]
    time_s: float  # the lane's own clock
    pools: Mapping[str, PoolUse | None] = field(default_factory=dict)


class Recording:
    """The trace of a run, from the events of its lanes.

    Args:
        recorders: one for each lane.
        about: the fields of the trace that no lane changes.
    """

    def __init__(self, recorders: dict[str, LaneRecorder], about: dict[str, Any]) -> None:
        self._recorders, self.about = recorders, about

    def record(self, lane: str, event: Event) -> Update:
        """Records the next event of a lane."""
        recorder = self._recorders[lane]
        tokens = recorder.record(event)
        return Update(lane, event, tokens, recorder.time_s, recorder.pools)

    def end(self, reason: FinishReason) -> None:
        """Ends the lanes that have no end."""
        for recorder in self._recorders.values():
            if not recorder.finished:
                recorder.record(Finish(reason))

    def trace(self) -> Trace:
        """The record as it stands; from any thread."""
        lanes = {name: recorder.lane() for name, recorder in self._recorders.items()}
        pieces: dict[int, str] = {}
        for recorder in self._recorders.values():
            pieces |= recorder.pieces
        return Trace(**self.about, lanes=lanes, pieces=pieces)
