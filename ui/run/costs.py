"""The view of a measurement of the costs of forward passes."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.decoding.economics import Measurement
from pipeline.engine import Engine
from pipeline.progress import Progress
from pipeline.request import Request
from ui.errors import logged_line
from ui.header import Status
from ui.run.view_state import Changes
from ui.tabs import what_if


class CostsDisplay:
    """Shows what is measured, and the figures at the end.

    Args:
        request: its caches are those that are measured.
        engine: the pair.
        waiting: it begins only after another run.
    """

    def __init__(self, request: Request, engine: Engine, waiting: bool = False) -> None:
        self._request, self._engine, self._waiting = request, engine, waiting

    def begin(self, tab: str) -> Changes:
        line = "Waiting for another run to end" if self._waiting else "Measuring"
        return Changes(status=self._status("running", line), notice="")

    def progress(self, reports: Sequence[Progress | Measurement], tab: str) -> Changes:
        stages = [report for report in reports if isinstance(report, Progress)]
        return Changes(status=self._status("running", f"{stages[-1]}…")) if stages else Changes()

    def end(self, latest: Progress | Measurement | None, failure: BaseException | None) -> Changes:
        if failure:
            status = self._status("error", "Failed")
            return Changes(status=status, notice=logged_line(failure, "measurement"))
        if not isinstance(latest, Measurement):
            return Changes(status=self._status("ready", "Stopped"))
        return Changes(
            tabs=what_if.costs_view(latest), status=self._status("ready", "Costs measured")
        )

    def _status(self, state: str, line: str) -> Status:
        return Status(state, line, self._request.draft_length, self._engine)
