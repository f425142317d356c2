"""Plots of the results of all studies and of `lab.load.simulate`.

pip install ".[engines]" && python -m lab.plot
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from lab.registry import STUDIES
from lab.result import Rows
from lab.saved import output_folder, path_of, saved
from lab.study import Study
from ui.plots.rows import draw

_ROOT = Path(__file__).parents[1]
_STYLES = _ROOT / "assets" / "page" / "page.css"
_SIMULATION = path_of("simulation")
_LONGEST_WAIT = 20  # seconds, the top of the plot
_OURS, _OTHERS = "#0068b5", "#9aa5b1"


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


def plotted(study: Study, rows: Rows) -> go.Figure:
    """The plot of a study, as on the page in its light theme."""
    figure = draw(study, rows, "")
    light, _, _ = _STYLES.read_text(encoding="utf-8").partition("}")
    colours = dict(re.findall(r"(--[\w-]+): (#\w+);", light))

    drawn = json.dumps({"data": figure.data, "layout": figure.layout})
    named = re.sub(r"var\((--[\w-]+)\)", lambda found: colours.get(found[1], found[0]), drawn)
    return go.Figure(json.loads(named))


def main() -> None:
    if _SIMULATION.is_file():
        results = json.loads(_SIMULATION.read_text(encoding="utf-8"))
        _write(waiting(results), "simulation")
    for study in STUDIES.values():
        if last := saved(study.name):
            _write(plotted(study, last.rows), study.name)


def _write(figure: go.Figure, name: str) -> None:
    path = output_folder() / f"{name}.svg"
    path.parent.mkdir(exist_ok=True)
    figure.update_layout(
        template="plotly_white", font_size=14, margin={"l": 10, "r": 20, "t": 20, "b": 10}
    )
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True)
    figure.write_image(path, width=860, height=420)
    print(path)


if __name__ == "__main__":
    main()
