"""The experiment that measures every draft length on the form's request."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from experiments.draft_length import REPEATS, Length, Sweep, sweep
from pipeline.request import Request
from ui.plots.figure import Figure, Json, axes, bar_style, milliseconds
from ui.plots.plot import Plot
from ui.plots.table import Table
from ui.tabs.tab import ExperimentTab

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly


def _measure(dolly: Dolly, request: Request) -> Generator[Sweep, None, None]:
    return sweep(dolly, [request])


def _draw(result: Sweep) -> Figure:
    """Milliseconds per token by draft length, as far as measured."""
    times = _milliseconds(result)
    others = [length for length in times if length != result.best]
    data: list[Json] = [
        {
            "type": "bar",
            "x": [_name(length) for length in lengths],
            "y": [times[length][0] for length in lengths],
            "name": name,
            "text": [f"{times[length][0]:.2f}" for length in lengths],
            "textposition": "inside",
            "insidetextanchor": "start",
            "textangle": 0,
            "textfont": {"color": "var(--ink)"},
            "marker": marker,
            "error_y": {
                "type": "data",
                "array": [times[length][2] - times[length][0] for length in lengths],
                "arrayminus": [times[length][0] - times[length][1] for length in lengths],
                "color": "var(--ink)",
                "thickness": 1,
            },
            "hovertemplate": "%{x}<br>%{y:.2f} ms per token<extra></extra>",
        }
        for name, lengths, marker in (
            (
                "fastest",
                [] if result.best is None else [result.best],
                bar_style("--accepted", "/", "--accepted-edge"),
            ),
            ("the others", others, bar_style("--soft", "", "--mute")),
        )
    ]
    layout = axes(
        result.created,
        "draft length K",
        "milliseconds per token",
        bargap=0.35,
        uniformtext={"minsize": 9, "mode": "hide"},  # no space on a narrow page
        xaxis={"type": "category", "categoryarray": [_name(length) for length in result.lengths]},
    )
    if 0 in times:
        across = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": times[0][0]}
        line = {"color": "var(--mute)", "width": 1, "dash": "dash"}
        layout["shapes"] = [across | {"y1": times[0][0], "line": line}]
    return Figure(data, layout, lambda: _table(result), _note(result))


def _milliseconds(result: Sweep) -> dict[Length, tuple[float, ...]]:
    """Milliseconds per token by length: of the median, the fastest and the slowest answer."""
    return {
        length: tuple(map(milliseconds, (median, *result.extremes(length))))
        for length, median in result.seconds_per_token.items()
    }


def _table(result: Sweep) -> Table:
    rows = []
    for length, times in _milliseconds(result).items():
        last = result.of(length)[-1]
        rows.append(
            [
                _name(length),
                *(f"{each:.3f}" for each in times),
                _figure(result.speedup(length), 2),
                _figure(last.acceptance_rate, 3),
                _figure(last.block_efficiency, 2),
            ]
        )
    columns = ("K", "Median ms per token", "Fastest", "Slowest", "Speedup")
    return Table((*columns, "Accepted of tested", "Tokens per step"), rows)


def _note(result: Sweep) -> str:
    done, fixed = len(result.answers), result.best_fixed
    parts = [] if result.complete else [f"{done} of {result.planned} answers measured."]
    if fixed is not None and (speedup := result.speedup(fixed)):
        name = f"K = {fixed}" if fixed else "none, so autoregression"
        parts.append(f"Fastest fixed draft length: {name}, {speedup:.2f}× autoregression.")
        if auto := result.speedup("auto"):
            parts.append(f"Chosen while decoding (auto): {auto:.2f}×.")
        parts.append("Bars are medians; whiskers reach from the fastest to the slowest answer.")
    return " ".join(parts)


def _name(length: Length) -> str:
    return "none" if length == 0 else str(length)


def _figure(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


TAB = ExperimentTab(
    name="lengths",
    title="Draft lengths",
    button="Measure every draft length",
    running="Measuring draft lengths",
    done="Draft lengths measured",
    measure=_measure,
    plots=(
        Plot(
            name="lengths",
            heading="Milliseconds per token by draft length",
            sentence=f"Answers the form’s request {REPEATS} times with every draft length, on the "
            "machine that serves this page. The dashed line is autoregression.",
            draw=_draw,
        ),
    ),
)
