"""The figure and the table of a study's rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING

from ui.plots.figure import Figure, Json, axes, bar_style, dashed
from ui.plots.table import Table

if TYPE_CHECKING:
    from lab.result import Cell, Column, Mark, Row, Rows
    from lab.study import Study

_HEIGHT = 300
# By series: colour, pattern of bars, dash and symbol of lines.
_STYLES = (
    ("--verify-time", "", "solid", "circle"),
    ("--resampled-edge", "/", "dash", "square"),
    ("--remembered-edge", ".", "dot", "diamond"),
    ("--bonus-edge", "x", "dashdot", "triangle-up"),
    ("--draft-time", "\\", "longdash", "cross"),
    ("--other-time", "-", "longdashdot", "x"),
    ("--ink", "|", "solid", "star"),
    ("--brand-strong", "+", "dash", "pentagon"),
)
_SYMBOLS = ("star", "star-open")  # of points of comparison, in turn


def draw(study: Study, rows: Rows, shown: str, own: Mark | None = None) -> Figure:
    """The plot of a study's rows.

    Args:
        rows: those measured so far; there may be none.
        shown: the id of the result; a visitor's zoom is kept until it changes.
        own: a visitor's race.
    """
    chart = study.chart
    x, first = study.column(chart.x), study.column(chart.y[0])
    if chart.series:
        groups = [
            (str(each), first, [row for row in rows if row[chart.series] == each])
            for each in dict.fromkeys(row[chart.series] for row in rows)
        ]
    else:
        columns = [study.column(name) for name in chart.y]
        groups = [(column.title, column, [*rows]) for column in columns]
    single = len(groups) == 1
    data = [
        _trace(study, place, name, column, group) | {"showlegend": not single}
        for place, (name, column, group) in enumerate(groups)
    ]
    data += [
        _point(x, first, *each) for each in zip(chart.marks(rows), cycle(_SYMBOLS), strict=False)
    ]
    if own:
        data.append(_point(x, first, own, "circle"))
    numeric = chart.kind == "lines" and all(isinstance(row[chart.x], int | float) for row in rows)
    order = [x.text(row[chart.x]) for row in rows]
    layout = axes(
        shown,
        x.heading,
        chart.axis or first.heading,
        height=_HEIGHT,
        barmode="group",
        bargap=0.3,
        xaxis={} if numeric else {"type": "category", "categoryarray": [*dict.fromkeys(order)]},
        yaxis={"type": "log" if chart.logarithmic else "linear"},
    )
    if (level := chart.level(rows)) is not None:
        layout["shapes"] = [dashed("y", level)]
    return Figure(data, layout, partial(table, study.columns, rows))


def table(columns: Sequence[Column], rows: Rows) -> Table:
    """The table of all columns."""
    texts = [[column.text(row.get(column.name)) for column in columns] for row in rows]
    return Table(tuple(column.heading for column in columns), texts)


def _trace(study: Study, place: int, name: str, y: Column, rows: Rows) -> Json:
    chart, x = study.chart, study.column(study.chart.x)
    colour, pattern, dash, symbol = _STYLES[place % len(_STYLES)]
    lines = chart.kind == "lines"
    made: Json = {
        "x": [_place(x, row[x.name], lines) for row in rows],
        "y": [_rounded(y.value(row[y.name])) for row in rows],
        "name": name,
        "hovertemplate": f"{x.title} %{{x}}<br>%{{y:.{y.digits}f}} {y.unit}<extra>{name}</extra>",
    }
    if chart.whiskers:
        made["error_y"] = _whiskers(rows, y, *map(study.column, chart.whiskers))
    if lines:
        return made | {
            "type": "scatter",
            "mode": "lines+markers",
            "line": {"color": f"var({colour})", "width": 2, "dash": dash},
            "marker": {"color": f"var({colour})", "symbol": symbol, "size": 8},
        }
    return made | {
        "type": "bar",
        "text": [y.text(row[y.name]) for row in rows],
        "textposition": "outside" if not chart.whiskers else "none",
        "textfont": {"color": "var(--ink)"},
        "cliponaxis": False,
        "marker": bar_style(colour, pattern),
    }


def _point(x: Column, y: Column, mark: Mark, symbol: str) -> Json:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [_rounded(x.value(mark.x))],
        "y": [_rounded(y.value(mark.y))],
        "name": mark.name,
        "marker": {"color": "var(--ink)", "symbol": symbol, "size": 12},
        "hovertemplate": f"{x.title} %{{x:.0f}} {x.unit}<br>%{{y:.{y.digits}f}} {y.unit}"
        f"<extra>{mark.name}</extra>",
    }


def _whiskers(rows: Rows, y: Column, low: Column, high: Column) -> Json:
    """How far the range of each mark reaches up and down."""

    def beyond(row: Row, end: Column) -> float:
        value, edge = y.value(row[y.name]), end.value(row[end.name])
        if isinstance(value, int | float) and isinstance(edge, int | float):
            return abs(edge - value)
        return 0.0

    return {
        "type": "data",
        "array": [beyond(row, high) for row in rows],
        "arrayminus": [beyond(row, low) for row in rows],
        "color": "var(--ink)",
        "thickness": 1,
    }


def _place(x: Column, cell: Cell, lines: bool) -> Cell:
    """Where on its axis: numbers of lines are on a scale, all others are categories."""
    return _rounded(x.value(cell)) if lines and isinstance(cell, int | float) else x.text(cell)


def _rounded(cell: Cell) -> Cell:
    return round(cell, 5) if isinstance(cell, float) else cell
