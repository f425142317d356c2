"""A run in a thread of its own, taken up in batches at a pace that leaves the CPU to the models."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue
from time import monotonic, sleep
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Run, Update

PERIOD = 0.1  # seconds; more than ten updates a second and drawing slows the models down
_PATIENCE = 0.5  # seconds without news after which an empty batch lets Gradio close the iteration


class Stream:
    """Starts `run` at once.

    Args:
        run: what to iterate.
        turn: held while the models work, so that a run under cancellation never overlaps the next.
    """

    def __init__(self, run: Run, turn: AbstractContextManager[object]) -> None:
        self.failure: Exception | None = None
        self._run, self._turn = run, turn
        self._updates: SimpleQueue[Update] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="run", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[list[Update]]:
        """What happened since the last batch, until the run ends. Closing it cancels the run."""
        try:
            while self._thread.is_alive():
                due = monotonic() + PERIOD
                self._thread.join(PERIOD)
                batch = self._take(_PATIENCE)
                sleep(max(0.0, due - monotonic()))
                yield batch + self._take()
            yield self._take()
        finally:
            self.cancel()

    def cancel(self) -> None:
        self._run.cancel()

    def rest(self) -> list[Update]:
        """Waits for the end, and returns what no batch held."""
        self._thread.join()
        return self._take()

    def _work(self) -> None:
        with self._turn:
            try:
                for update in self._run:
                    self._updates.put(update)
            except Exception as error:
                logging.getLogger(__name__).exception("A run failed")
                self.failure = error

    def _take(self, patience: float = 0.0) -> list[Update]:
        taken: list[Update] = []
        try:
            while True:
                taken.append(self._updates.get(timeout=0 if taken or not patience else patience))
        except Empty:
            return taken
