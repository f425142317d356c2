"""Plots of the results of benchmarks, of experiments and of `lab.load.simulate`.

pip install -r requirements.txt -r lab/requirements.txt && python -m lab.plot
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from lab.registry import EXPERIMENTS
from lab.report import RESULTS
from lab.result import Rows
from lab.saved import path_of, saved
from lab.study import Experiment
from pipeline.models.pairs import DEFAULT_PAIR
from ui.plots.rows import draw

_ROOT = Path(__file__).parents[1]
_STYLES = _ROOT / "assets" / "page" / "page.css"
_SIMULATION = _ROOT / "serving" / "results" / "simulation.json"
_LONGEST_WAIT = 20  # seconds, the top of the plot
_OURS, _OTHERS = "#0068b5", "#9aa5b1"
_MARKS = "circle", "square", "diamond", "triangle-up", "cross", "star", "line-ns"  # by task


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


def tasks(results: dict[str, Any]) -> go.Figure:
    """Speedups of every engine over the fastest autoregressive one, on the tasks of Spec-Bench; a
    line marks that of all questions.
    """
    rows = [row for row in results["results"] if "failed" not in row]
    rows.sort(key=lambda row: row["over_fastest"]["all"])
    engines = [row["engine"] for row in rows]
    figure = go.Figure()
    for place, task in enumerate(rows[0]["over_fastest"]):
        figure.add_scatter(
            x=[row["over_fastest"][task] for row in rows],
            y=engines,
            mode="markers",
            name=task,
            marker={"symbol": _MARKS[place], "size": 20 if task == "all" else 9, "line_width": 2},
        )
    figure.add_vline(x=1, line_dash="dash", line_color=_OTHERS)
    figure.update_xaxes(title="speedup over the fastest autoregressive decoding of all engines")
    figure.update_yaxes(dtick=1)
    return figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"})


def waiting(results: dict[str, Any]) -> go.Figure:
    """Seconds that 95 % of visitors wait at most, by visitors a minute and replicas of two cores:
    simulated (points) and by the formula (lines).
    """
    figure = go.Figure()
    rows = [row for row in results["rows"] if row["cores"] == 2]
    for replicas in sorted({row["replicas"] for row in rows}):
        series = [row for row in rows if row["replicas"] == replicas]
        rates = [row["visitors_per_minute"] for row in series]
        for source, mode in (("formula", "lines"), ("simulated", "markers")):
            figure.add_scatter(
                x=rates,
                y=[row[source]["p95"] for row in series],
                mode=mode,
                marker_color=_OURS,
                line_color=_OTHERS,
                name=source,
                showlegend=replicas == 1,
            )
        figure.add_annotation(
            x=math.log10(rates[-1]),
            y=min(series[-1]["simulated"]["p95"], _LONGEST_WAIT),
            text=f"{replicas:g}",
            showarrow=False,
            yshift=14,
        )
    figure.update_xaxes(
        title="visitors a minute, by the number of replicas", type="log", dtick="D2"
    )
    figure.update_yaxes(title="95 % wait at most, seconds", range=[0, 1.1 * _LONGEST_WAIT])
    return figure.update_layout(legend={"x": 0.01, "y": 0.99})


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
    for path, drawn, height in (
        (RESULTS / "peers.json", peers, 420),
        (RESULTS / "spec_bench.json", tasks, 560),
        (_SIMULATION, waiting, 420),
    ):
        if path.is_file():
            _write(drawn(json.loads(path.read_text(encoding="utf-8"))), path, height)
    for each in EXPERIMENTS.values():
        if last := saved(each):
            _write(experiment(each, last.rows), path_of(each))


def _write(figure: go.Figure, results: Path, height: int = 420) -> None:
    """Writes the picture beside the results."""
    figure.update_layout(
        template="plotly_white", font_size=14, margin={"l": 10, "r": 20, "t": 20, "b": 10}
    )
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True)
    figure.write_image(results.with_suffix(".svg"), width=860, height=height)
    print(results.with_suffix(".svg"))


if __name__ == "__main__":
    main()
