"""The trace of a run while it grows, from the events of its lanes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.decoding.events import Event, Finish, FinishReason
from pipeline.trace.record import Token, Trace
from pipeline.trace.recorder import NO_POOLS, LaneRecorder, Pools


@dataclass(frozen=True, slots=True)
class Update:
    """An event of a lane. `tokens` are those that a step emitted, with their text; `pools` are the
    blocks of the caches after a step. `rest` is the text that was withheld until the end of the
    lane, since it could have been the beginning of a stop text.
    """

    lane: str
    event: Event
    tokens: tuple[Token, ...]
    time_s: float  # the lane's own clock
    pools: Pools
    rest: str


class Recording:
    """The trace of a run, from the events of its lanes.

    Args:
        recorders: one for each lane.
        about: the fields of the trace that no lane changes; those of the models are known once the
            run is prepared.
    """

    def __init__(self, recorders: dict[str, LaneRecorder], about: dict[str, Any]) -> None:
        self._recorders, self.about = recorders, about

    def record(self, lane: str, event: Event, pools: Pools = NO_POOLS) -> Update:
        """Records the next event of a lane, with the caches' blocks after a step."""
        recorder = self._recorders[lane]
        tokens = recorder.record(event, pools)
        return Update(lane, event, tokens, recorder.time_s, pools, recorder.rest)

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
