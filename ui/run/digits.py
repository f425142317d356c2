"""The view of digits while they are drawn."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.digits import Drawing
from pipeline.engine import Engine
from pipeline.progress import Progress
from pipeline.request import Request
from ui.errors import logged_line
from ui.header import Status
from ui.run.view_state import Changes
from ui.tabs import beyond_text

_DRAWING = "Drawing digits"


class DigitsDisplay:
    """Shows the pixels so far, and what is prepared before.

    Args:
        request: how they are sampled.
        engine: the pair in the header, which stays loaded.
    """

    def __init__(self, request: Request, engine: Engine) -> None:
        self._request, self._engine = request, engine
        self._preparing = False

    def begin(self, tab: str) -> Changes:
        return Changes(status=self._status("running", _DRAWING), notice="")

    def progress(self, reports: Sequence[Drawing | Progress], tab: str) -> Changes:
        if not reports:
            return Changes()
        latest, prepared = reports[-1], self._preparing
        self._preparing = isinstance(latest, Progress)
        if isinstance(latest, Progress):
            return Changes(status=self._status("running", f"{latest}…"))
        begun = self._status("running", _DRAWING) if prepared else None
        return Changes(tabs=_tabs(latest), status=begun)

    def end(self, latest: Drawing | Progress | None, failure: BaseException | None) -> Changes:
        drawing = latest if isinstance(latest, Drawing) else None
        done = drawing is not None and drawing.complete
        status = self._status("ready", "Digits drawn" if done else "Stopped")
        return Changes(
            tabs=_tabs(drawing) if drawing else {},
            status=self._status("error", "Failed") if failure else status,
            notice=logged_line(failure) if failure else "",
        )

    def _status(self, state: str, line: str) -> Status:
        return Status(state, line, self._request.draft_length, self._engine)


def _tabs(drawing: Drawing) -> dict[str, str]:
    return {beyond_text.TAB.name: beyond_text.value(drawing)}
