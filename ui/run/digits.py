"""The view of digits while they are drawn."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.digits import Drawing
from pipeline.engine import Engine
from pipeline.request import Request
from ui.errors import logged_line
from ui.header import Status
from ui.run.view_state import Changes
from ui.tabs import beyond_text


class DigitsDisplay:
    """Shows the pixels so far.

    Args:
        request: how they are sampled.
        engine: the pair in the header, which stays loaded.
    """

    def __init__(self, request: Request, engine: Engine) -> None:
        self._request, self._engine = request, engine

    def begin(self, tab: str) -> Changes:
        return Changes(status=self._status("running", "Drawing digits"), notice="")

    def progress(self, reports: Sequence[Drawing], tab: str) -> Changes:
        return self._show(reports[-1]) if reports else Changes()

    def end(self, latest: Drawing | None, failure: BaseException | None) -> Changes:
        done = latest is not None and latest.complete
        status = self._status("ready", "Digits drawn" if done else "Stopped")
        return Changes(
            tabs=self._show(latest).tabs if latest else {},
            status=self._status("error", "Failed") if failure else status,
            notice=logged_line(failure) if failure else "",
        )

    def _show(self, drawing: Drawing) -> Changes:
        return Changes(tabs={beyond_text.TAB.name: beyond_text.value(drawing)})

    def _status(self, state: str, line: str) -> Status:
        return Status(state, line, self._request.draft_length, self._engine)
