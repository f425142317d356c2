"""A visitor of the page, through its API: a tab of its own.

`python -m lab.load.visitor URL` begins a long race and waits, for a trial that closes its tab.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import TimeoutError as NotYet
from typing import TYPE_CHECKING, Any

from lab.load.server import PATIENCE
from pipeline.request import Request
from pipeline.trace.reader import parse_trace
from pipeline.trace.record import Trace

if TYPE_CHECKING:
    from gradio_client.client import Job

LONG = Request("Tell me a story.", max_new_tokens=1000, kv_cache="uncached")  # a minute and more
_PERIOD = 0.01  # seconds between two looks
_PATIENCE = 180.0  # seconds; a replica that is lost takes some to come back


class Visitor:
    """One races at a time: Gradio's Stop ends all of a session."""

    def __init__(self, url: str) -> None:
        from gradio_client import Client

        patient = {"timeout": PATIENCE}
        self._client = Client(url, verbose=False, analytics_enabled=False, httpx_kwargs=patient)

    def race(self, request: Request) -> Race:
        """Asks for a race; returns once it is in the queue or begins."""
        return Race(self._client.submit(**request.form, api_name="/race"))

    def close(self) -> None:
        self._client.close()


class Race:
    """A race that a visitor has asked for.

    Attributes:
        asked: seconds since 1970.
        rank: its place in the queue when it was queued, as the server reported it: 0 is the next;
            None if it began, or was refused, before it was seen there.
    """

    def __init__(self, job: Job) -> None:
        from gradio_client.utils import Status

        self.asked = time.time()
        self._job = job
        asking = (Status.STARTING, Status.JOINING_QUEUE, Status.SENDING_DATA)
        while not self.ended and job.status().code in asking:
            self._wait()
        status = job.status()
        self.rank = status.rank if status.code is Status.IN_QUEUE else None

    @property
    def begun(self) -> bool:
        """Whether a token has come."""
        return any(map(_has_tokens, self._job.outputs()))

    @property
    def ended(self) -> bool:
        """Whether its result is there, or a failure."""
        return bool(self._job.done())

    def wait_until_begun(self) -> float:
        """Returns the seconds until the first token, or until it ended without one.

        Raises:
            TimeoutError: neither happens.
        """
        while not (self.begun or self.ended):
            self._wait()
        return time.time() - self.asked

    def _wait(self) -> None:
        if time.time() - self.asked > _PATIENCE:
            raise TimeoutError
        time.sleep(_PERIOD)

    def stop(self) -> None:
        """As the page's button."""
        self._job.cancel()

    def failure(self, timeout: float) -> str:
        """The line that the visitor is told, once there is one; "" if there is none in time."""
        try:
            return str(self._job.exception(timeout) or "")
        except NotYet:
            return ""

    def trace(self) -> Trace:
        """The whole record, once the race has ended.

        Raises:
            Exception: gradio_client's, if it failed or was refused.
            TimeoutError: it does not end.
        """
        if error := self._job.exception(_PATIENCE):
            raise error
        last: dict[str, Any] = json.loads(self._job.outputs()[-1])
        return parse_trace(json.dumps(last["trace"]))


def _has_tokens(message: str) -> bool:
    return any(update["tokens"] for update in json.loads(message).get("updates", ()))


if __name__ == "__main__":
    racing = Visitor(sys.argv[1]).race(LONG)
    racing.wait_until_begun()
    print("begun", flush=True)
    racing.failure(timeout=600)
