"""Plots of the results in `benchmarks/results/`, for its README.

pip install -r requirements.txt -r benchmarks/requirements.txt && python -m benchmarks.plot
"""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go

from benchmarks.report import RESULTS
from pipeline.models.pairs import DEFAULT_PAIR

_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9")  # Okabe and Ito
_OURS, _OTHERS, _LIMIT = "#0068b5", "#9aa5b1", "#d9dee3"


def peers(results: dict[str, Any]) -> go.Figure:
    """Milliseconds per token of the embedded pair, by engine; whiskers are quartiles."""
    rows = [row for row in results["results"][DEFAULT_PAIR] if "failed" not in row]
    rows.sort(key=lambda row: -row["ms_per_token"]["median"])
    spreads = [row["ms_per_token"] for row in rows]
    figure = go.Figure(
        go.Bar(
            x=[spread["median"] for spread in spreads],
            y=[row["engine"] for row in rows],
            text=[f"{spread['median']:.1f}" for spread in spreads],
            textposition="inside",
            insidetextanchor="start",
            orientation="h",
            marker_color=[
                _OURS if row["engine"].startswith("this project") else _OTHERS for row in rows
            ],
            error_x={
                "array": [spread["high"] - spread["median"] for spread in spreads],
                "arrayminus": [spread["median"] - spread["low"] for spread in spreads],
                "thickness": 1,
            },
        )
    )
    return figure.update_layout(xaxis_title="milliseconds per token, the embedded pair")


def draft_length(results: dict[str, Any]) -> go.Figure:
    """Milliseconds per token by fixed draft length and, separately, with "auto"."""
    figure = go.Figure()
    for row, colour in zip(results["results"], _COLOURS, strict=True):
        *fixed, auto = row["ms_per_token"].items()
        lengths, times = zip(*fixed, strict=True)
        figure.add_scatter(
            x=[*lengths, "auto", "auto"],
            y=[*times, None, auto[1]],  # no line across
            name=row["kind"],
            mode="lines+markers",
            marker_color=colour,
        )
    return figure.update_layout(xaxis_title="draft length", yaxis_title="milliseconds per token")


def roofline(results: dict[str, Any]) -> go.Figure:
    """Time of a decoding step, and its lower bound by memory bandwidth."""
    rows = results["results"]
    names = [f"{row['shape']} {row['weights']}" for row in rows]
    least = [1e3 * row["bytes"] / results["bytes_per_second"] for row in rows]
    figure = go.Figure()
    figure.add_bar(x=names, y=least, name="memory bandwidth limit", marker_color=_LIMIT)
    figure.add_bar(
        x=names, y=[r["step_ms"] for r in rows], name="measured step", marker_color=_OURS
    )
    return figure.update_layout(yaxis_title="milliseconds per step")


def precision(results: dict[str, Any]) -> go.Figure:
    """Size against divergence, for each precision of the target's weights and of its cache."""
    figure = go.Figure()
    kinds = dict.fromkeys(row["kv"] for row in results["quality"])
    symbols = ("circle", "square", "diamond", "x")
    for kv, symbol, colour in zip(kinds, symbols, _COLOURS, strict=False):
        rows = [row for row in results["quality"] if row["kv"] == kv]
        figure.add_scatter(
            x=[row["bytes"] / 1e6 for row in rows],
            y=[max(row["kl"], 1e-7) for row in rows],  # 0, the reference's, has no logarithm
            text=[f"{row['weights']}, {row['top1']:.1%}" for row in rows],
            name=f"{kv} cache",
            mode="markers+text",
            textposition="top center",
            marker={"symbol": symbol, "color": colour, "size": 10},
        )
    return figure.update_layout(
        xaxis_title="megabytes of the target's weights",
        yaxis={"title": "divergence from float32, nats per token", "type": "log"},
    )


def main() -> None:
    for draw in (peers, draft_length, roofline, precision):
        path = RESULTS / f"{draw.__name__}.json"
        if not path.is_file():  # this benchmark has no results yet
            continue
        figure = draw(json.loads(path.read_text(encoding="utf-8")))
        figure.update_layout(
            template="plotly_white", font_size=14, margin={"l": 10, "r": 20, "t": 20, "b": 10}
        )
        figure.update_xaxes(automargin=True)
        figure.update_yaxes(automargin=True)
        figure.write_image(path.with_suffix(".svg"), width=860, height=420)
        print(path.with_suffix(".svg"))


if __name__ == "__main__":
    main()
