"""What visitors start from a tab: work on the models, and its view."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import gradio as gr

from pipeline.engine import Engine
from pipeline.models.choice import Choice
from pipeline.progress import Progress
from pipeline.request import Request
from ui.errors import logged_line
from ui.header import Status
from ui.run.activity import Display
from ui.run.view_state import Changes

Work = Generator[Any, None, None]

WAITING = "Waiting for another run to end"
_NO_VIEWS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Asked:
    """What an action is started with.

    Attributes:
        engine: the loaded pair.
        request: of the form.
        choice: of the loaded pair.
        load: compiles another pair.
        waiting: whether it begins only after another run.
    """

    engine: Engine
    request: Request
    choice: Choice
    load: Callable[[Choice], Engine]
    waiting: bool = False

    def status(self, state: str, line: str) -> Status:
        return Status(state, line, self.engine)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Action:
    """
    Attributes:
        name: of its button, as the element's id.
        label: of its button.
        start: returns the work, which has not begun, and its display. It raises UserError if the
            work cannot be done here.
        style: of its button.
    """

    name: str
    label: str
    start: Callable[[Asked], tuple[Work, Display]]
    style: str = ""

    def add_button(self) -> gr.Button:
        """Adds its button to the page being built."""
        return gr.Button(self.label, size="sm", elem_id=self.name, elem_classes=self.style or None)


class StagedDisplay:
    """Shows the stages of a work in the status, and its results in views.

    Args:
        asked: what it was started with.
        doing: the status while it yields results.
        done: the status after its last result.
        views: returns the values of views, by name, of the latest result, or None without one, and
            a state: "running", "done", "stopped" or "failed".
        complete: whether a result is the last.
        first: the values of views before the first result.
        period: seconds between two drawings of a result.
    """

    def __init__(
        self,
        asked: Asked,
        doing: str,
        done: str,
        views: Callable[[Any, str], Mapping[str, str]],
        complete: Callable[[Any], bool] = lambda _: True,
        first: Mapping[str, str] = _NO_VIEWS,
        period: float = 0.0,
    ) -> None:
        self._asked, self._doing, self._done = asked, doing, done
        self._views, self._complete, self._first = views, complete, first
        self._period, self._drawn = period, 0.0
        self._shown: Any = None
        self._line = WAITING if asked.waiting else doing

    def begin(self, tab: str) -> Changes:
        status = self._asked.status("running", self._line)
        return Changes(views={**self._first}, status=status, notice="")

    def progress(self, reports: Sequence[Any], tab: str) -> Changes:
        if not reports:
            return Changes()
        latest, before, now = reports[-1], self._line, monotonic()
        staged = isinstance(latest, Progress)
        self._line = f"{latest}…" if staged else self._doing
        due = not staged and latest is not self._shown and now - self._drawn >= self._period
        if due:
            self._shown, self._drawn = latest, now
        return Changes(
            views={**self._views(latest, "running")} if due else {},
            status=None if self._line == before else self._asked.status("running", self._line),
        )

    def end(self, latest: Any, failure: BaseException | None) -> Changes:
        result = None if isinstance(latest, Progress) else latest
        whole = result is not None and self._complete(result)
        state = "failed" if failure else "done" if whole else "stopped"
        line = self._done if state == "done" else state.capitalize()
        return Changes(
            views={**self._views(result, state)},
            status=self._asked.status("error" if failure else "ready", line),
            notice=logged_line(failure) if failure else None,
        )
