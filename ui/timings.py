"""What each target run cost, as a Plotly figure and as tables.

Colours are CSS variables: the page knows its theme, Python does not.
"""

from __future__ import annotations

import json
from collections import Counter

import plotly.graph_objects as go

from pipeline.trace import Lane, Trace
from ui.live import encode

_PARTS = (  # field of a step, its name, its pattern: none depends on colour alone
    ("draft_s", "draft", "/"),
    ("verify_s", "verify", ""),
    ("other_s", "other", "x"),
)
_LANE_COLUMNS = ("", "Prefill ms", "Decoding ms", "Tokens", "Target runs", "ms per token")
_STEP_COLUMNS = ("Run", "Draft ms", "Verify ms", "Other ms", "Drafted", "Accepted", "Made")


def timings(trace: Trace, tables: bool) -> str:
    """The value of `timings.js`. Without `tables` it is quick enough for a run under way."""
    value: dict[str, object] = {"figure": json.loads(step_times(trace).to_json())}
    if tables:
        lanes = [_lane_row(name, lane) for name, lane in trace.lanes.items()]
        steps = _step_rows(trace.lanes["speculative"])
        value["tables"] = [
            {"columns": _LANE_COLUMNS, "rows": lanes},
            {"columns": _STEP_COLUMNS, "rows": steps},
        ]
    return encode(value)


def step_times(trace: Trace) -> go.Figure:
    """The speculative lane's runs, stacked by part, under the autoregressive lane's."""
    figure = go.Figure()
    if lane := trace.speculative:
        runs = [step.index + 1 for step in lane.steps]
        for field, name, pattern in _PARTS:
            figure.add_bar(
                x=runs,
                y=[_ms(getattr(step, field)) for step in lane.steps],
                name=name,
                marker={
                    "color": f"var(--{name}-time)",
                    "line": {"color": "var(--card)", "width": 0.5},
                    "pattern": {
                        "shape": pattern,
                        "fgcolor": "var(--card)",
                        "fillmode": "overlay",
                        "size": 5,
                        "solidity": 0.25,
                    },
                },
                hovertemplate=f"run %{{x}}<br>{name} %{{y:.2f}} ms<extra>speculative</extra>",
            )
    if lane := trace.autoregressive:
        figure.add_scatter(
            x=[step.index + 1 for step in lane.steps],
            y=[_ms(step.seconds) for step in lane.steps],
            name="an autoregressive run",
            mode="lines",
            line={"shape": "hvh", "color": "var(--ink)", "width": 1.5, "dash": "dot"},
            hovertemplate="run %{x}<br>%{y:.2f} ms<extra>autoregressive</extra>",
        )
    figure.update_layout(
        template="none",
        barmode="stack",
        bargap=0.15,
        height=280,
        margin={"l": 52, "r": 8, "t": 8, "b": 40},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": "var(--mute)", "size": 12},
        hoverlabel={"bgcolor": "var(--card)", "bordercolor": "var(--line)"},
        legend={
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        xaxis={"title": {"text": "target run"}, "showgrid": False},
        yaxis={
            "title": {"text": "milliseconds"},
            "gridcolor": "var(--line)",
            "zeroline": False,
            "rangemode": "tozero",
        },
        uirevision=trace.created,
    )
    return figure


def _lane_row(name: str, lane: Lane) -> list[str]:
    each = lane.seconds_per_token
    return [
        name,
        f"{_ms(lane.prefill_s):.1f}",
        f"{_ms(lane.decode_s):.1f}",
        str(len(lane.tokens)),
        str(len(lane.steps)),
        "–" if each is None else f"{_ms(each):.2f}",
    ]


def _step_rows(lane: Lane) -> list[list[str]]:
    made = Counter(token.step for token in lane.tokens)
    return [
        [
            str(step.index + 1),
            *(f"{_ms(getattr(step, field)):.2f}" for field, _, _ in _PARTS),
            str(len(step.drafted)),
            str(step.accepted),
            str(made[step.index]),
        ]
        for step in lane.steps
    ]


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
