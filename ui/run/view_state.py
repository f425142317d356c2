"""The current values of a page's views, and changes to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import time_ns

from ui.component import encode
from ui.header import Status


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes to the page. None leaves a view unchanged.

    Attributes:
        lines: of a `Transcript`, for the panes.
        verdict: the fields of the verdict.
        views: the values of others, by name.
    """

    lines: str | None = None
    verdict: dict[str, str] | None = None
    views: dict[str, str] = field(default_factory=dict)
    status: Status | None = None
    notice: str | None = None


class ViewState:
    """The latest value of every view that has changed since the page was built.

    Each output of an event costs Gradio time, during which the models wait. So all views share one
    output, whose new values `updates.js` passes on. The lines of the panes, the longest, are a
    second one.
    """

    def __init__(self) -> None:
        self._views: dict[str, dict[str, object]] = {}
        self._lines = ""
        self._updated = 0  # microseconds since 1970: an integer that JavaScript represents exactly

    def update(self, values: Mapping[str, str], lines: str | None = None) -> tuple[str, str]:
        """Sets the views of these names, and the lines; returns the values of both outputs."""
        self._updated = now = max(time_ns() // 1000, self._updated + 1)
        self._views |= {name: {"when": now, "value": value} for name, value in values.items()}
        if lines is not None:
            self._lines = lines
        return encode(self._views), self._lines
