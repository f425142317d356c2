"""The use of the models: one run at a time, or one for each replica of them.

Whatever compiles, measures or runs models of this process does it in `Turn.run`, so that nothing
disturbs the times of a run or of a measurement. Only the first pair is loaded outside of the
page's turn: until that is done, there is nothing to run.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

from pipeline.environment import give_back_memory

Report = TypeVar("Report")
Result = TypeVar("Result")

_PERIOD = 0.1  # seconds between two reports of work that waits


class Turn:
    """Runs works in the order in which they began to wait, at most `at_once` together, so that the
    times of a run are its own.

    Once it is closed, runs end at their next event.
    """

    def __init__(self, at_once: int = 1) -> None:
        self.at_once = at_once
        self._places: deque[object] = deque()  # the first ones have the models
        self._changed = threading.Condition()
        self._closed = threading.Event()

    def run(
        self, work: Generator[Report, None, Result], unread: Callable[[], bool] = lambda: False
    ) -> Generator[Report | None, None, Result | None]:
        """Iterates `work` when its turn has come, until the turn is closed. Yields None while it
        waits, so that whoever iterates it can close it.

        Args:
            unread: whether nobody reads the reports; then works that wait go first.

        Returns:
            The result of `work`; None if the turn was closed before.
        """
        with self._queued() as place, closing(work):
            yield from self._wait(place)
            try:
                while not self.closed:
                    try:
                        report = next(work)
                    except StopIteration as end:
                        result: Result = end.value
                        return result
                    yield report
                    if unread() and self._step_back(place):
                        yield from self._wait(place)
                return None
            finally:  # before the next run, whose times it would disturb
                give_back_memory()

    @property
    def taken(self) -> bool:
        """Whether a new work would have to wait."""
        return len(self._places) >= self.at_once

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def close(self, timeout: float) -> None:
        """Ends the current runs; waits for their end, at most `timeout` seconds."""
        self._closed.set()
        with self._changed:
            self._changed.wait_for(lambda: not self._places, timeout)

    @contextmanager
    def _queued(self) -> Iterator[object]:
        """A place at the end of the queue, until the context is left."""
        place = object()
        with self._changed:
            self._places.append(place)
        try:
            yield place
        finally:
            with self._changed:
                self._places.remove(place)
                self._changed.notify_all()

    def _wait(self, place: object) -> Iterator[None]:
        """Yields until the place is one of the first, or the turn is closed."""
        while not (self._arrived(place) or self.closed):
            yield None

    def _step_back(self, place: object) -> bool:
        """Moves the place to the end of the queue; returns whether anybody waits there."""
        with self._changed:
            if len(self._places) <= self.at_once:
                return False
            self._places.remove(place)
            self._places.append(place)
            self._changed.notify_all()
            return True

    def _arrived(self, place: object) -> bool:
        """Whether the place is one of the first, now or within a period."""
        with self._changed:
            return self._changed.wait_for(lambda: self._places.index(place) < self.at_once, _PERIOD)
