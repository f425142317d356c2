"""What the views of one tab show."""

from __future__ import annotations

from collections.abc import Mapping
from time import time_ns

from ui.component import encode


class Board:
    """Every view's latest value, as far as it is not what the view was made with.

    Gradio takes long over each output of an event, and the models wait for that; so the board is
    one, and `updates.js` tells each view what is new.
    """

    def __init__(self) -> None:
        self._views: dict[str, dict[str, object]] = {}
        self._told = 0  # when: microseconds since 1970, which a script can count

    def tell(self, values: Mapping[str, str]) -> str:
        """Takes new values, by the names of their views; returns the value of the component."""
        self._told = when = max(time_ns() // 1000, self._told + 1)
        self._views |= {name: {"when": when, "value": value} for name, value in values.items()}
        return encode(self._views)
