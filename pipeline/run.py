"""A run: one request being answered, and its trace.

Depends on events and traces only; not on models or OpenVINO.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

from pipeline.decoding.events import Event, Finish, FinishReason
from pipeline.decoding.race import Schedule, race
from pipeline.trace.record import Token, Trace
from pipeline.trace.recorder import LaneRecorder


@dataclass(frozen=True, slots=True)
class Update:
    """An event of a lane. `tokens` are those that a step emitted, with their text."""

    lane: str
    event: Event
    tokens: tuple[Token, ...]
    time_s: float  # the lane's own clock


class Run:
    """One request being answered. Iterate it once, or `finish` it; `trace()` is there at any time.

    Args:
        lanes: the decoders at work, by name.
        recorders: one for each lane.
        about: the fields of the trace that no lane changes.
        schedule: whose turn it is.
    """

    def __init__(
        self,
        lanes: dict[str, Iterator[Event]],
        recorders: dict[str, LaneRecorder],
        about: dict[str, Any],
        schedule: Schedule = race,
    ) -> None:
        self._lanes, self._recorders, self._about = lanes, recorders, about
        self._schedule = schedule
        self._cancelled = threading.Event()

    def __iter__(self) -> Generator[Update, None, None]:
        """Runs the lanes. A lane left without an end, because the iteration was cancelled or
        closed or because it failed, gets one in the trace.
        """
        racing = self._schedule(self._lanes)
        reason = FinishReason.CANCELLED
        try:
            for name, event in racing:
                recorder = self._recorders[name]
                tokens = recorder.record(event)
                yield Update(name, event, tokens, recorder.time_s)
                if self._cancelled.is_set():
                    break
        except Exception:
            reason = FinishReason.ERROR
            raise
        finally:
            racing.close()
            self._end(reason)

    def finish(self) -> Trace:
        """Runs the lanes to their end."""
        for _ in self:
            pass
        return self.trace()

    def cancel(self) -> None:
        """Ends the run after the event under way; from any thread."""
        self._cancelled.set()

    def close(self) -> None:
        """Marks a run that was never iterated as cancelled; one that has ended stays as it is."""
        self._end(FinishReason.CANCELLED)

    def _end(self, reason: FinishReason) -> None:
        for recorder in self._recorders.values():
            if not recorder.finished:
                recorder.record(Finish(reason))

    def trace(self) -> Trace:
        """The record as it stands; from any thread."""
        lanes = {name: recorder.lane() for name, recorder in self._recorders.items()}
        pieces: dict[int, str] = {}
        for recorder in self._recorders.values():
            pieces |= recorder.pieces
        return Trace(**self._about, lanes=lanes, pieces=pieces)
