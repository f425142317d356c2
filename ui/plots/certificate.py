"""The plot of the sampled certificate: p-values of every variant, and of a wrong verifier.

It shows the committed result of `python -m lab sampled`, whatever the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.trace.record import Trace
from ui.laboratory import last_result
from ui.plots.figure import Figure, Json, axes, bar_style, dashed
from ui.plots.plot import Plot
from ui.plots.table import Table

if TYPE_CHECKING:
    from lab.saved import Saved

_COLUMNS = ("Drafter", "Draft length", "Verification", "Accepted of tested", "Distance", "p")


def _draw(trace: Trace) -> Figure:
    found = last_result("sampled")
    layout = axes(
        trace.created,
        "p-value of a context",
        "share of the contexts",
        barmode="group",
        xaxis={"range": [0, 1], "tickformat": ".1f"},
        yaxis={"tickformat": ".0%"},
    )
    if found is None:
        return Figure([], layout, lambda: Table(_COLUMNS, []), "No result is committed.")
    *histograms, wrong = found.figures["histograms"]
    every = [sum(bins) for bins in zip(*histograms, strict=True)]
    data = [
        _bars(f"all {len(histograms)} variants", every, bar_style("--accepted", "")),
        _bars("a wrong verifier", wrong, bar_style("--resampled", "/")),
    ]
    layout["shapes"] = [dashed("y", 1 / len(every), "--ink")]
    return Figure(data, layout, lambda: _table(found), _note(found))


def _bars(name: str, counts: list[int], marker: Json) -> Json:
    width, total = 1 / len(counts), sum(counts)
    return {
        "type": "bar",
        "x": [round((at + 0.5) * width, 4) for at in range(len(counts))],
        "y": [round(count / total, 5) for count in counts],
        "name": name,
        "marker": marker,
        "hovertemplate": "p about %{x:.2f}<br>%{y:.0%} of the contexts<extra>%{fullData.name}"
        "</extra>",
    }


def _table(found: Saved) -> Table:
    return Table(_COLUMNS, [_row(dict(each)) for each in found.rows])


def _row(fit: dict[str, Any]) -> list[str]:
    rate = fit["acceptance"]
    return [
        fit["drafter"] or "none, autoregressive",
        fit["draft_length"] if fit["drafter"] else "",
        fit["verification"] if fit["drafter"] else "",
        "" if rate is None else f"{100 * rate:.0f} %",
        f"{fit['distance']:.3f}",
        f"{fit['p']:.2g}",
    ]


def _note(found: Saved) -> str:
    about = found.figures
    return (
        f"Pair {found.pair['name']}; temperature {about['temperature']:g}, top-p "
        f"{about['top_p']:g}, top-k {about['top_k']}; {about['contexts']} contexts from held-out "
        f"questions, {about['draws']} draws of each variant after each. Evenness is tested with "
        f"Kolmogorov–Smirnov. {found.sentence} {found.badge}, with: python -m lab sampled"
    )


CERTIFICATE = Plot(
    name="certificate",
    heading="Sampled text follows the target: the test",
    sentence="Every drafter, draft length and way to verify draws the next two tokens many times, "
    "and chi-square compares them with the exact distribution, which follows from the target’s "
    "logits. If they agree, all p-values are equally likely: every bar reaches the dashed line. "
    "The wrong verifier samples from the target’s distribution after a rejection, and not from "
    "the residual.",
    draw=_draw,
)
