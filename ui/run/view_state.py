"""What a visitor's page shows, and what changes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import time_ns

from ui.component import encode
from ui.header import Status


@dataclass(frozen=True, slots=True)
class Changes:
    """What changes. `None` leaves as it is what is on the page.

    Attributes:
        lines: of a `Transcript`, which the panes draw.
        verdict: its fields.
        tabs: values by the names of the tabs.
    """

    lines: str | None = None
    verdict: dict[str, str] | None = None
    tabs: dict[str, str] = field(default_factory=dict)
    status: Status | None = None
    notice: str | None = None


class ViewState:
    """The latest value of every view, as far as it is not what the view was made with.

    Gradio takes long over each output of an event, and the models wait for that; so all views are
    one output, from which `updates.js` passes on what is new. The panes' lines, which are longest,
    are another.
    """

    def __init__(self) -> None:
        self._views: dict[str, dict[str, object]] = {}
        self._lines = ""
        self._updated = 0  # when: microseconds since 1970, which a script can count

    def update(self, values: Mapping[str, str], lines: str | None = None) -> tuple[str, str]:
        """Changes the views of these names, and the lines; returns the values of both outputs."""
        self._updated = now = max(time_ns() // 1000, self._updated + 1)
        self._views |= {name: {"when": now, "value": value} for name, value in values.items()}
        if lines is not None:
            self._lines = lines
        return encode(self._views), self._lines
