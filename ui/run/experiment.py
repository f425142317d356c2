"""The view of an experiment on the page."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING

from ui.errors import logged_line
from ui.run.action import WAITING, Asked
from ui.run.view_state import Changes

if TYPE_CHECKING:
    from lab.result import Result
    from ui.tabs.experiments import ExperimentView

_PERIOD = 1.0  # seconds between two drawings


class ExperimentDisplay:
    """Redraws the experiment whenever its result has grown.

    Args:
        view: of the experiment.
        asked: what it was started with.
    """

    def __init__(self, view: ExperimentView, asked: Asked) -> None:
        self._view, self._status = view, asked.status
        self._waiting = asked.waiting
        self._shown: Result | None = None
        self._drawn = 0.0

    def begin(self, tab: str) -> Changes:
        doing = WAITING if self._waiting else self._measuring
        return Changes(
            tabs=self._draw(None, "running"), status=self._status("running", doing), notice=""
        )

    def progress(self, reports: Sequence[Result], tab: str) -> Changes:
        if not reports:
            return Changes()
        begun = self._status("running", self._measuring) if self._waiting else None
        self._waiting = False
        latest, now = reports[-1], monotonic()
        if latest is self._shown or now - self._drawn < _PERIOD:
            return Changes(status=begun)
        self._shown, self._drawn = latest, now
        return Changes(tabs=self._draw(latest, "running"), status=begun)

    def end(self, latest: Result | None, failure: BaseException | None) -> Changes:
        state = "failed" if failure else "done" if latest and latest.complete else "stopped"
        line = f"Measured: {self._view.title}" if state == "done" else state.capitalize()
        return Changes(
            tabs=self._draw(latest, state),
            status=self._status("error" if failure else "ready", line),
            notice=logged_line(failure) if failure else None,
        )

    @property
    def _measuring(self) -> str:
        return f"Measuring: {self._view.title}"

    def _draw(self, result: Result | None, state: str) -> dict[str, str]:
        return {self._view.name: self._view.value(result, state, tables=state != "running")}
