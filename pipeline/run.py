"""A run: one request being answered, and its trace.

Depends on events and traces only; not on models or OpenVINO.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pipeline.decoding.events import Event, FinishReason, Step
from pipeline.decoding.race import Schedule, race
from pipeline.progress import Progress
from pipeline.trace.record import Trace
from pipeline.trace.recording import NO_POOLS, Pools, Recording, Update


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a run computes with.

    Attributes:
        lanes: the decoders, by name.
        pair: the trace's `pair`: the models that are used.
        pools: returns the blocks of their caches now.
    """

    lanes: Mapping[str, Iterator[Event]]
    pair: dict[str, Any]
    pools: Callable[[], Pools] = lambda: NO_POOLS


class Run:
    """One request being answered. Iterate it once, or `finish` it; `trace()` is there at any time.

    Args:
        prepare: compiles and measures what is missing, and allocates the caches; it yields each
            stage before it begins.
        recording: the trace of its lanes, whose `pair` is replaced once it is prepared.
        schedule: which lane runs next.
    """

    def __init__(
        self,
        prepare: Callable[[], Generator[Progress, None, Prepared]],
        recording: Recording,
        schedule: Schedule = race,
    ) -> None:
        self._prepare, self._schedule = prepare, schedule
        self._recording, self._cancelled = recording, threading.Event()

    def __iter__(self) -> Generator[Update | Progress, None, None]:
        """Prepares the run, then runs the lanes. A lane left without an end, because the iteration
        was cancelled or closed or because it failed, gets one in the trace.

        Raises:
            UserError: as `prepare`.
        """
        reason = FinishReason.CANCELLED
        try:
            prepared = yield from self._prepare()
            self._recording.about["pair"] = prepared.pair
            with closing(self._schedule(prepared.lanes)) as racing:
                for name, event in racing:
                    pools = prepared.pools() if isinstance(event, Step) else NO_POOLS
                    yield self._recording.record(name, event, pools)
                    if self._cancelled.is_set():
                        break
        except Exception:
            reason = FinishReason.ERROR
            raise
        finally:
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
