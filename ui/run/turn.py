"""Exclusive use of the models: one run at a time."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import closing
from typing import TypeVar

Report = TypeVar("Report")


class Turn:
    """A lock around the models, so that the times of a run are its own.

    Once it is closed, runs end at their next event.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def hold(self, work: Generator[Report, None, None]) -> Generator[Report, None, None]:
        """Iterates `work` while holding the lock, until the turn is closed."""
        with self._lock, closing(work):
            for report in work:
                yield report
                if self.closed:
                    return

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def close(self, timeout: float) -> None:
        """Ends the current run; waits for its end, at most `timeout` seconds."""
        self._closed.set()
        if self._lock.acquire(timeout=timeout):
            self._lock.release()
