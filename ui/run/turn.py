"""Whose turn it is to use the models."""

from __future__ import annotations

import threading


class Turn:
    """Held by a run while it works: one at a time, whoever asks. That is what makes its times true.

    Once it is closed, runs end at their next event.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def close(self, patience: float) -> None:
        """Tells the run under way to end, and waits for that, but not longer than `patience`."""
        self._closed.set()
        if self._lock.acquire(timeout=patience):
            self._lock.release()
