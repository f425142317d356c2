"""Whose turn it is to use the models."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import closing
from typing import TypeVar

Report = TypeVar("Report")


class Turn:
    """Held by one run at a time, whoever asks. That is what makes its times true.

    Once it is closed, runs end at their next event.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def hold(self, work: Generator[Report, None, None]) -> Generator[Report, None, None]:
        """Iterates `work` while nobody else holds the turn, until that is closed."""
        with self._lock, closing(work):
            for report in work:
                yield report
                if self.closed:
                    return

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def close(self, patience: float) -> None:
        """Has the run under way end, and waits for that, but no longer than `patience` seconds."""
        self._closed.set()
        if self._lock.acquire(timeout=patience):
            self._lock.release()
