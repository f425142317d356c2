"""What visitors start from a tab: work on the models, and its view."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
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
        views: returns the values of views, by name, of a result.
        complete: whether a result is the last.
    """

    def __init__(
        self,
        asked: Asked,
        doing: str,
        done: str,
        views: Callable[[Any], Mapping[str, str]],
        complete: Callable[[Any], bool] = lambda _: True,
    ) -> None:
        self._asked, self._doing, self._done = asked, doing, done
        self._views, self._complete = views, complete
        self._line = WAITING if asked.waiting else doing

    def begin(self, tab: str) -> Changes:
        return Changes(status=self._asked.status("running", self._line), notice="")

    def progress(self, reports: Sequence[Any], tab: str) -> Changes:
        if not reports:
            return Changes()
        latest, before = reports[-1], self._line
        staged = isinstance(latest, Progress)
        self._line = f"{latest}…" if staged else self._doing
        return Changes(
            tabs={} if staged else {**self._views(latest)},
            status=None if self._line == before else self._asked.status("running", self._line),
        )

    def end(self, latest: Any, failure: BaseException | None) -> Changes:
        result = None if latest is None or isinstance(latest, Progress) else latest
        whole = result is not None and self._complete(result)
        outcome = ("ready", self._done if whole else "Stopped")
        return Changes(
            tabs={**self._views(result)} if result is not None else {},
            status=self._asked.status(*(("error", "Failed") if failure else outcome)),
            notice=logged_line(failure) if failure else None,
        )
