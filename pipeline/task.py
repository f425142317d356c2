"""Background work: it starts, reports progress, and ends, fails or is cancelled."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

Report = TypeVar("Report")
Result = TypeVar("Result")


class Task(Generic[Report, Result]):
    """Runs a generator in a thread. Its reports are queued until they are read.

    Args:
        work: yields reports of its progress, or None while it waits, and returns its result.
        name: of the thread.
        delay: seconds before the work begins.

    Attributes:
        latest: the last report; None before the first.
        failure: the exception that `work` raised, if any.
    """

    def __init__(
        self, work: Generator[Report | None, None, Result], name: str, delay: float = 0.0
    ) -> None:
        self.latest: Report | None = None
        self.failure: BaseException | None = None
        self._work, self._delay = work, delay
        self._result: Result | None = None
        self._reports: SimpleQueue[Report] = SimpleQueue()
        self._cancelled = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def updates(self, period: float) -> Iterator[list[Report]]:
        """Yields the new reports, perhaps none, every `period` seconds until the work has ended."""
        while self.running:
            self._thread.join(period)
            yield self._take()
        if rest := self._take():  # the work may end before the first update
            yield rest

    def follow(self, period: float) -> Iterator[list[Report]]:
        """Starts the work and yields its reports, as `updates`; closing it cancels the work.

        Raises:
            BaseException: the exception that the work raised.
        """
        self.start()
        try:
            yield from self.updates(period)
        finally:
            self.cancel()
        if self.failure:
            raise self.failure

    def cancel(self) -> None:
        """Closes the work after its next report, without waiting for that."""
        self._cancelled.set()

    def stop(self) -> None:
        """Cancels the work and waits for its end."""
        self.cancel()
        self._thread.join()

    def result(self) -> Result:
        """Waits for the work and returns its result. Not for work that may be cancelled.

        Raises:
            BaseException: the exception that the work raised.
        """
        self._thread.join()
        if self.failure:
            raise self.failure
        assert self._result is not None
        return self._result

    def _take(self) -> list[Report]:
        taken: list[Report] = []
        while True:
            try:
                taken.append(self._reports.get_nowait())
            except Empty:
                return taken

    def _run(self) -> None:
        try:
            self._cancelled.wait(self._delay)
            while True:
                report = next(self._work)
                if report is not None:
                    self.latest = report
                    self._reports.put(report)
                if self._cancelled.is_set():
                    self._work.close()
                    return
        except StopIteration as end:
            self._result = end.value
        except BaseException as error:  # SystemExit too: `result` must not wait forever
            self.failure = error
