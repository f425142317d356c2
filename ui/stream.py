"""A run on a thread of its own, drained at a pace that a browser can follow.

The engine never waits for the page, and a slow page never skews a clock: a queue lies between.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator
from time import monotonic

from pipeline.dolly import Run, Update
from pipeline.errors import UserError
from ui.feed import Feed

_UPDATE_S = 0.1  # the browser takes its time from the model on the same machine
_SUMMARY_S = 1.0
_log = logging.getLogger(__name__)


def stream(run: Run, feed: Feed) -> Iterator[str]:
    """The run's lines so far, again and again, at most ten times a second.

    Closing it cancels the run, and returns when the engine is at rest.

    Raises:
        UserError: the engine failed; what was made until then has been shown.
    """
    updates: queue.SimpleQueue[Update | None] = queue.SimpleQueue()
    failure: list[Exception] = []

    def work() -> None:
        try:
            for update in run:
                updates.put(update)
        except Exception as error:
            _log.exception("the run failed")
            failure.append(error)
        finally:
            updates.put(None)

    worker = threading.Thread(target=work, name="race", daemon=True)
    lines = feed.start(run.trace())
    yield lines
    worker.start()
    try:
        summarised, running = monotonic(), True
        while running:
            batch = list(_drain(updates, monotonic() + _UPDATE_S))
            running = batch[-1:] != [None]
            lines += "".join(feed.update(update) for update in batch if update)
            if monotonic() - summarised > _SUMMARY_S:
                lines += feed.summary(run.trace())
                summarised = monotonic()
            yield lines
        lines += feed.end(run.trace())
        yield lines
    finally:
        run.cancel()
        worker.join()
    if failure:
        raise UserError("engine", type(failure[0]).__name__, "run again; the log has the details")


def _drain(updates: queue.SimpleQueue[Update | None], until: float) -> Iterator[Update | None]:
    """What arrives before `until`, or before the end (None)."""
    while (wait := until - monotonic()) > 0:
        try:
            update = updates.get(timeout=wait)
        except queue.Empty:
            return
        yield update
        if update is None:
            return
