"""Figures: their data, table and style, common to all plots.

Figures are plain JSON, since a `go.Figure` takes a hundred times as long to build, for which the
models would wait during a run. `Figure.checked` builds one.

Colours are CSS variables, since only the browser has the theme. No information is in colour alone:
bars have patterns and lines have dashes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pipeline.decoding.events import AUTOREGRESSIVE, SPECULATIVE
from pipeline.trace.record import Lane, Trace
from ui.plots.table import Table

Json = dict[str, Any]

_HEIGHT = 280
_FEW = 12  # steps


@dataclass(frozen=True, slots=True)
class Figure:
    """
    Attributes:
        data, layout: Plotly's.
        table: returns the table, which is not needed during a run.
        note: a line below the figure.
    """

    data: list[Json]
    layout: Json
    table: Callable[[], Table]
    note: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to plot."""
        return not any(part.get("x") for part in self.data)

    @property
    def checked(self) -> Any:
        """The `go.Figure`; raises ValueError for a property that Plotly does not have."""
        import plotly.graph_objects as go  # slow to import, and not needed to show a plot

        return go.Figure(self.data, self.layout)


def shown_lane(trace: Trace) -> tuple[str, Lane]:
    """The name and the lane for plots of a single lane: the speculative one, if it ran."""
    name = SPECULATIVE if SPECULATIVE in trace.lanes else AUTOREGRESSIVE
    return name, trace.lanes[name]


def axes(shown: str, x: str, y: str, **changes: Any) -> Json:
    """The layout of a figure.

    Args:
        shown: the id of the run; a visitor's zoom is kept until it changes.
        x, y: titles of the axes.
        changes: further settings, which take precedence.
    """
    layout: Json = {
        "barmode": "stack",
        "bargap": 0.15,
        "height": _HEIGHT,
        "margin": {"l": 52, "r": 12, "t": 8, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": "var(--mute)", "size": 12},
        "hoverlabel": {
            "bgcolor": "var(--card)",
            "bordercolor": "var(--line)",
            "font": {"color": "var(--ink)"},
        },
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        "xaxis": {"title": {"text": x}, "showgrid": False, "zeroline": False},
        "yaxis": {
            "title": {"text": y},
            "gridcolor": "var(--line)",
            "zeroline": False,
            "rangemode": "tozero",
        },
        "uirevision": shown,
    }
    return merged(layout, changes)


def axes_of_rows(shown: str, x: str, height: int, **xaxis: Any) -> Json:
    """The layout of a figure of horizontal bars, from top to bottom."""
    return axes(
        shown,
        x,
        "",
        height=height,
        bargap=0.35,
        xaxis={"showgrid": True, "gridcolor": "var(--line)", **xaxis},
        yaxis={"autorange": "reversed", "showgrid": False, "automargin": True, "ticksuffix": " "},
    )


def dashed(axis: Literal["x", "y"], at: float, colour: str = "--mute") -> Json:
    """A shape of a layout: a line through the whole plot, at a value of an axis."""
    other = "y" if axis == "x" else "x"
    ends = {f"{other}ref": "paper", f"{other}0": 0, f"{other}1": 1, f"{axis}0": at, f"{axis}1": at}
    return {"type": "line", **ends, "line": {"color": f"var({colour})", "width": 1, "dash": "dash"}}


def step_axis(lane: Lane) -> Json:
    """Settings of an axis of steps: with few steps, ticks at whole numbers only."""
    return {"dtick": 1} if len(lane.steps) <= _FEW else {}


def merged(one: Json, other: Json) -> Json:
    """Both, nested objects too; where they differ, the other takes precedence."""
    result = dict(one)
    for key, value in other.items():
        old = result.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        result[key] = merged(old or {}, value) if both else value
    return result


def bar_style(colour: str, pattern: str, edge: str = "--card") -> Json:
    """The marker of a bar: the names of two CSS variables and Plotly's name of a pattern."""
    return {
        "color": f"var({colour})",
        "line": {"color": f"var({edge})", "width": 0.5 if edge == "--card" else 1},
        "pattern": {
            "shape": pattern,
            "fgcolor": f"var({edge})",
            "fillmode": "overlay",
            "size": 5,
            "solidity": 0.25,
        },
    }


def milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
