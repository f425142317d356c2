"""What a visitor started, a race or an action, from its start to its end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Protocol

from pipeline.task import Task
from ui.run.view_state import Changes

PERIOD = 0.2  # seconds between updates; each takes time from the models (`lab.studies.page_tax`)


class Display(Protocol):
    """Turns the reports of an activity into changes of the page. `tab` is the selected tab."""

    def begin(self, tab: str) -> Changes: ...

    def progress(self, reports: Sequence[Any], tab: str) -> Changes:
        """The changes after these reports, of which there may be none."""
        ...

    def end(self, latest: Any, failure: BaseException | None) -> Changes:
        """The whole view after the last report, and after the failure if there was one."""
        ...


class Activity:
    """A task and its display.

    Stop's handler may run while the activity's own handler is still running. Both then show the
    end, since Gradio discards the output of a cancelled handler; the lock orders them.

    Args:
        work: the work, not started yet.
        display: shows its reports.
        delay: seconds before the work begins.
    """

    def __init__(
        self, work: Generator[Any, None, Any], display: Display, delay: float = 0.0
    ) -> None:
        self._task = Task(work, "activity", delay)
        self._display = display
        self._lock = threading.Lock()
        self._end: Changes | None = None

    @property
    def running(self) -> bool:
        return self._task.running

    def follow(self, tab: Callable[[], str]) -> Iterator[Changes]:
        """Starts the work and yields changes until it ends. Closing the iterator cancels it.

        Args:
            tab: returns the name of the selected tab.
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
        """Ends the work, if it has not ended; returns its final view."""
        self._task.stop()
        return self._ended()

    def _progress(self, reports: Sequence[Any], tab: str) -> Changes:
        with self._lock:
            return Changes() if self._end else self._display.progress(reports, tab)

    def _ended(self) -> Changes:
        with self._lock:
            self._end = self._end or self._display.end(self._task.latest, self._task.failure)
            return self._end
