"""The view of an experiment on the page."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING

from pipeline.request import Request
from ui.errors import logged_line
from ui.header import Status
from ui.run.view_state import Changes
from ui.tabs.tab import ExperimentTab, Outcome

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly

_PERIOD = 1.0  # seconds between two drawings


class ExperimentDisplay:
    """Redraws the experiment's tab whenever its result has grown."""

    def __init__(self, tab: ExperimentTab, request: Request, dolly: Dolly) -> None:
        self._tab, self._request, self._dolly = tab, request, dolly
        self._latest: Outcome | None = None
        self._shown: Outcome | None = None
        self._drawn = 0.0

    def begin(self, tab: str) -> Changes:
        return Changes(status=self._status("running", self._tab.running), notice="")

    def progress(self, reports: Sequence[Outcome], tab: str) -> Changes:
        self._latest = reports[-1] if reports else self._latest
        if self._latest is self._shown or monotonic() - self._drawn < _PERIOD:
            return Changes()
        self._shown, self._drawn = self._latest, monotonic()
        return Changes(tabs=self._draw(self._latest, tables=False))

    def end(self, latest: Outcome | None, failure: BaseException | None) -> Changes:
        done = latest is not None and latest.complete
        status = Status("ready", self._tab.done if done else "Stopped")
        return Changes(
            tabs=self._draw(latest, tables=True),
            status=Status("error", "Failed") if failure else status,
            notice=logged_line(failure) if failure else "",
        )

    def _draw(self, outcome: Outcome | None, tables: bool) -> dict[str, str]:
        return {self._tab.name: self._tab.value(outcome, tables)} if outcome else {}

    def _status(self, state: str, line: str) -> Status:
        return Status(state, line, self._request.draft_length, self._dolly)
