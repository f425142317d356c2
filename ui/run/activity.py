"""What a visitor started, a race or an experiment, from its start to whichever end it has."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Protocol

from ui.run.task import Task
from ui.run.view_state import Changes

PERIOD = 0.2  # seconds between updates; each takes time from the models (`benchmarks.page_tax`)


class Display(Protocol):
    """What the page shows of an activity. `tab` is the one that the visitor looks at."""

    def begin(self, tab: str) -> Changes: ...

    def progress(self, reports: Sequence[Any], tab: str) -> Changes:
        """What changed with these reports, of which there may be none."""
        ...

    def end(self, latest: Any, failure: BaseException | None) -> Changes:
        """All of it, as it stands after the last report, and after the failure if it ended so."""
        ...


class Activity:
    """A task and its display.

    Stop's handler may come while the activity's own is still at work. Both then show the end, since
    Gradio loses what a cancelled handler shows; the lock is for this.

    Args:
        work: what takes long. It is not started yet.
        display: of its reports.
    """

    def __init__(self, work: Generator[Any, None, None], display: Display) -> None:
        self._task = Task(work, name="activity")
        self._display = display
        self._lock = threading.Lock()
        self._end: Changes | None = None

    @property
    def running(self) -> bool:
        return self._task.running

    def follow(self, tab: Callable[[], str]) -> Iterator[Changes]:
        """Starts it, and shows it to its end. Closing the iterator cancels it.

        Args:
            tab: returns the one that the visitor looks at by now.
        """
        self._task.start()
        try:
            yield self._display.begin(tab())
            for reports in self._task.updates(PERIOD):
                yield self._progress(reports, tab())
        finally:
            self._task.cancel()
        yield self._ended()

    def stop(self) -> Changes:
        """Ends it; returns what it came to, also if it has ended before."""
        self._task.stop()
        return self._ended()

    def _progress(self, reports: Sequence[Any], tab: str) -> Changes:
        with self._lock:
            return Changes() if self._end else self._display.progress(reports, tab)

    def _ended(self) -> Changes:
        with self._lock:
            self._end = self._end or self._display.end(self._task.latest, self._task.failure)
            return self._end
