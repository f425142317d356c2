"""A run: one request being answered, and its trace.

Depends on events and traces only; not on models or OpenVINO.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from typing import Any

from pipeline.decoding.events import Event, FinishReason
from pipeline.decoding.race import Schedule, race
from pipeline.trace.record import Trace
from pipeline.trace.recorder import LaneRecorder
from pipeline.trace.recording import Recording, Update


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
        self._lanes, self._schedule = lanes, schedule
        self._recording = Recording(recorders, about)
        self._cancelled = threading.Event()

    def __iter__(self) -> Generator[Update, None, None]:
        """Runs the lanes. A lane left without an end, because the iteration was cancelled or
        closed or because it failed, gets one in the trace.
        """
        racing = self._schedule(self._lanes)
        reason = FinishReason.CANCELLED
        try:
            for name, event in racing:
                yield self._recording.record(name, event)
                if self._cancelled.is_set():
                    break
        except Exception:
            reason = FinishReason.ERROR
            raise
        finally:
            racing.close()
            self._recording.end(reason)

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
        self._recording.end(FinishReason.CANCELLED)

    def trace(self) -> Trace:
        """The record as it stands; from any thread."""
        return self._recording.trace()
