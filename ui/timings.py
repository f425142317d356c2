"""The step-time plot: what every target run cost, in both lanes."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from pipeline.trace import Lane, Trace

# Fill, edge and pattern: told apart without colour too. They read on light and on dark.
_PARTS = (
    ("draft", "draft_s", "#F2A66B", "/"),
    ("verify", "verify_s", "#7FA8F5", ""),
    ("other", "other_s", "#9AA3B2", "."),
)


def timings(trace: Trace) -> dict[str, Any]:
    """Plotly's figure as plain JSON: milliseconds of each step against its number."""
    figure = go.Figure()
    if trace.speculative:
        for name, field, colour, shape in _PARTS:
            figure.add_bar(
                name=f"speculative: {name}",
                x=[step.index for step in trace.speculative.steps],
                y=_milliseconds(trace.speculative, field),
                marker={"color": colour, "pattern": {"shape": shape, "fgcolor": "#00000066"}},
                hovertemplate="step %{x}: %{y:.2f} ms",
            )
    if trace.autoregressive:
        figure.add_scatter(
            name="autoregressive: one token",
            x=[step.index for step in trace.autoregressive.steps],
            y=_milliseconds(trace.autoregressive, "seconds"),
            mode="lines",
            line={"color": "#8A94A6", "dash": "dot", "width": 2},
            hovertemplate="step %{x}: %{y:.2f} ms",
        )
    figure.update_layout(
        template="none",
        barmode="stack",
        bargap=0.15,
        height=260,
        margin={"l": 52, "r": 8, "t": 8, "b": 40},
        legend={"orientation": "h", "y": 1.15},
        xaxis={"title": {"text": "target run"}},
        yaxis={"title": {"text": "ms"}, "rangemode": "tozero"},
        uirevision="steps",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
    )
    plain: dict[str, Any] = figure.to_plotly_json()
    return {key: plain[key] for key in ("data", "layout")}


def timing_rows(trace: Trace) -> list[tuple[str, str, str, str, str]]:
    """The plot's table: each lane's runs, and the median milliseconds of their parts."""
    return [
        (name, str(len(lane.steps)), *(_median(lane, field) for _, field, _, _ in _PARTS))
        for name, lane in trace.lanes.items()
    ]


def _milliseconds(lane: Lane, field: str) -> list[float]:
    return [round(1e3 * getattr(step, field), 3) for step in lane.steps]


def _median(lane: Lane, field: str) -> str:
    ordered = sorted(_milliseconds(lane, field))
    return f"{ordered[len(ordered) // 2]:.2f}" if ordered else "–"
