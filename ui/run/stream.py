"""A run in a thread of its own, followed at a pace that leaves the CPU to the models."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from queue import Empty, SimpleQueue

from pipeline.run import Run, Update
from ui.run.turn import Turn

PERIOD = 0.2  # seconds; every drawing takes time from the models (`benchmarks.page_tax`)


class Stream:
    """Starts `run` at once. To leave its `with` cancels it.

    Args:
        run: what to iterate.
        turn: held while the models work, so that a run being cancelled never overlaps the next.
            When it closes, the run is cancelled.
    """

    def __init__(self, run: Run, turn: Turn) -> None:
        self.failure: Exception | None = None
        self._run, self._turn = run, turn
        self._updates: SimpleQueue[Update] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="run", daemon=True)
        self._thread.start()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._run.cancel()

    @property
    def works(self) -> bool:
        """Whether the run is under way."""
        return self._thread.is_alive()

    def beats(self) -> Iterator[None]:
        """A beat for each time to `take`, until the run has ended."""
        while self.works:
            self._thread.join(PERIOD)
            yield

    def stop(self) -> None:
        """Cancels the run and waits for its end."""
        self._run.cancel()
        self._thread.join()

    def take(self) -> list[Update]:
        """What nobody has taken yet."""
        taken: list[Update] = []
        while True:
            try:
                taken.append(self._updates.get_nowait())
            except Empty:
                return taken

    def _work(self) -> None:
        with self._turn:
            try:
                for update in self._run:
                    self._updates.put(update)
                    if self._turn.closed:
                        self._run.cancel()
            except Exception as error:
                logging.getLogger(__name__).exception("A run failed")
                self.failure = error
