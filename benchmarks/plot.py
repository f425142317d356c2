"""Plots of the results of benchmarks and of experiments, for the README.

pip install -r requirements.txt -r benchmarks/requirements.txt && python -m benchmarks.plot
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from benchmarks.report import RESULTS
from experiments.experiment import Experiment
from experiments.registry import EXPERIMENTS
from experiments.result import Rows
from experiments.saved import path_of, saved
from pipeline.models.pairs import DEFAULT_PAIR
from ui.plots.rows import draw

_STYLES = Path(__file__).parents[1] / "assets" / "page" / "page.css"
_OURS, _OTHERS = "#0068b5", "#9aa5b1"


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


def experiment(view: Experiment, rows: Rows) -> go.Figure:
    """The plot of an experiment, as on the page in its light theme."""
    figure = draw(view, rows, "")
    light, _, _ = _STYLES.read_text(encoding="utf-8").partition("}")
    colours = dict(re.findall(r"(--[\w-]+): (#\w+);", light))

    def coloured(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: coloured(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [coloured(each) for each in value]
        named = isinstance(value, str) and value.startswith("var(")
        return colours.get(value[4:-1], value) if named else value

    return go.Figure(coloured(figure.data), coloured(figure.layout))


def main() -> None:
    path = RESULTS / "peers.json"
    _write(peers(json.loads(path.read_text(encoding="utf-8"))), path)
    for each in EXPERIMENTS.values():
        if last := saved(each):
            _write(experiment(each, last.rows), path_of(each))


def _write(figure: go.Figure, results: Path) -> None:
    """Writes the picture beside the results."""
    figure.update_layout(
        template="plotly_white", font_size=14, margin={"l": 10, "r": 20, "t": 20, "b": 10}
    )
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True)
    figure.write_image(results.with_suffix(".svg"), width=860, height=420)
    print(results.with_suffix(".svg"))


if __name__ == "__main__":
    main()
