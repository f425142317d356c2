"""The time and the tokens of each step. A step is one forward pass of the target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.decoding.events import AUTOREGRESSIVE, SPECULATIVE
from pipeline.trace.metrics import LOST, break_even_s, outlier_limit, yields
from pipeline.trace.record import Trace
from ui.plots.figure import (
    Figure,
    Json,
    axes,
    bar_style,
    milliseconds,
    shown_lane,
    step_axis,
)
from ui.plots.plot import Plot
from ui.plots.table import Table
from ui.tabs.tab import RunTab
from ui.tabs.timings import PARTS

TIMES = {f"{part}_s": (part, pattern) for part, pattern in PARTS if part != "prefill"}
_YIELD = (  # tokens: name, colour, pattern, edge; the first five are emitted, the others `LOST`
    ("accepted", "--accepted", "", "--accepted-edge"),
    ("remembered", "--remembered", "\\", "--remembered-edge"),
    ("resampled", "--resampled", "/", "--resampled-edge"),
    ("bonus", "--bonus", ".", "--bonus-edge"),
    ("target", "--card", "", "--mute"),
    ("rejected", "--soft", "x", "--mute"),
    ("unused", "--soft", "-", "--mute"),
)
_WIDEST_MARK = 14  # pixels
_MAX_NAMED = 5  # steps that a note names


def _cost(trace: Trace) -> Figure:
    """The stacked parts of each step, and the time of its tokens in autoregressive decoding."""
    name, lane = shown_lane(trace)
    numbers = [step.index + 1 for step in lane.steps]
    data: list[Json] = [
        {
            "type": "bar",
            "x": numbers,
            "y": [milliseconds(getattr(step, field)) for step in lane.steps],
            "name": part,
            "marker": bar_style(f"--{part}-time", pattern),
            "hovertemplate": f"step %{{x}}<br>{part} %{{y:.2f}} ms<extra>{name}</extra>",
        }
        for field, (part, pattern) in TIMES.items()
    ]
    layout = axes(trace.created, "step", "milliseconds", xaxis=step_axis(lane))
    notes = []
    evens = [milliseconds(seconds) for seconds in break_even_s(trace, lane)]
    if evens:
        data += _marks(numbers, evens)
    else:
        notes.append("No break-even marks: they need an autoregressive run to compare with.")
    costs = {step.index + 1: milliseconds(step.seconds) for step in lane.steps}
    if limit := outlier_limit(list(costs.values())):
        limit = max([limit, *(1.05 * even for even in evens)])
        cut = {step: cost for step, cost in costs.items() if cost > limit}
        if cut:
            layout["yaxis"]["range"] = [0, limit]
            data.append(_arrows(cut, limit, len(numbers)))
            notes.append(cut_note(cut, limit))
    return Figure(data, layout, lambda: steps_table(trace), " ".join(notes))


def _marks(numbers: list[int], evens: list[float]) -> list[Json]:
    """Break-even marks with a light rim, which makes them visible on dark bars."""

    def lines(colour: str, width: int) -> Json:
        return {
            "type": "scatter",
            "x": numbers,
            "y": evens,
            "mode": "markers",
            "marker": {
                "symbol": "line-ew-open",
                "size": max(3.0, min(_WIDEST_MARK, 800 / max(1, len(numbers)))),
                "color": f"var({colour})",
                "line": {"color": f"var({colour})", "width": width},
            },
        }

    return [
        lines("--card", 6) | {"name": "rim", "hoverinfo": "skip", "showlegend": False},
        lines("--ink", 2)
        | {
            "name": "break-even",
            "hovertemplate": "step %{x}<br>break-even %{y:.2f} ms<extra></extra>",
        },
    ]


def _arrows(cut: dict[int, float], limit: float, steps: int) -> Json:
    """Labels with the full length of the bars that are cut off, on the side that has space."""
    return {
        "type": "scatter",
        "x": list(cut),
        "y": [0.97 * limit] * len(cut),
        "text": [f" {cost:.0f} ms " for cost in cut.values()],
        "mode": "markers+text",
        "textposition": [f"middle {'right' if step <= steps / 2 else 'left'}" for step in cut],
        "textfont": {"color": "var(--ink)"},
        "name": "cut off",
        "marker": {
            "symbol": "triangle-up",
            "size": 11,
            "color": "var(--ink)",
            "line": {"color": "var(--card)", "width": 1},
        },
        "hovertemplate": "step %{x}<br>total%{text}<extra>cut off</extra>",
    }


def cut_note(cut: Mapping[Any, float], limit: float) -> str:
    """Names the steps that take longer than the limit of the axis; both in milliseconds."""
    named = [f"{step} ({cost:.0f} ms)" for step, cost in list(cut.items())[:_MAX_NAMED]]
    if more := len(cut) - len(named):
        named.append(f"{more} more")
    return f"Bars are cut off at {limit:.0f} ms; longer steps: {', '.join(named)}."


def _yield(trace: Trace) -> Figure:
    """Emitted tokens above the axis, lost drafts below."""
    _, lane = shown_lane(trace)
    counts = yields(lane)
    numbers = [step.index + 1 for step in lane.steps]
    data: list[Json] = [
        {
            "type": "bar",
            "x": numbers,
            "y": [(-1 if what in LOST else 1) * count[what] for count in counts],
            "customdata": [count[what] for count in counts],
            "name": what,
            "marker": bar_style(colour, pattern, edge),
            "hovertemplate": f"step %{{x}}<br>%{{customdata}} {what}<extra></extra>",
        }
        for what, colour, pattern, edge in _YIELD
        if what not in ("target", "remembered") or any(count[what] for count in counts)
    ]
    highest = max((step.accepted + 1 for step in lane.steps), default=1)
    lowest = -max((sum(count[what] for what in LOST) for count in counts), default=0)
    ticks = range(lowest, highest + 1, 1 if highest - lowest <= 10 else 2)
    layout = axes(
        trace.created,
        "step",
        "lost | emitted",
        barmode="relative",
        xaxis=step_axis(lane),
        yaxis={
            "tickvals": list(ticks),
            "ticktext": [str(abs(tick)) for tick in ticks],
            "rangemode": "normal",
            "zeroline": True,
            "zerolinecolor": "var(--mute)",
        },
    )

    def table() -> Table:
        names = [what for what, *_ in _YIELD]
        rows = [
            [str(number), *(str(count[what]) for what in names)]
            for number, count in zip(numbers, counts, strict=True)
        ]
        return Table(("Step", *(name.capitalize() for name in names)), rows)

    return Figure(data, layout, table)


def steps_table(trace: Trace) -> Table:
    """All steps of both lanes, those of the speculative lane first."""
    columns = (
        *("Method", "Step", "Draft ms", "Verify ms", "Other ms", "Total ms", "Break-even ms"),
        *("Drafted", "Tested", "Accepted", "Emitted", "Drafted text", "Emitted text"),
    )
    rows = []
    for name in (SPECULATIVE, AUTOREGRESSIVE):
        lane = trace.lanes.get(name)
        if lane is None:
            continue
        evens = [f"{milliseconds(seconds):.2f}" for seconds in break_even_s(trace, lane)]
        evens = evens or [""] * len(lane.steps)
        for step, tokens, even in zip(lane.steps, lane.emitted, evens, strict=True):
            rows.append(
                [
                    name,
                    str(step.index + 1),
                    *(f"{milliseconds(getattr(step, field)):.2f}" for field in TIMES),
                    f"{milliseconds(step.seconds):.2f}",
                    even,
                    *map(str, (len(step.drafted), step.tested, step.accepted, len(tokens))),
                    "".join(trace.pieces.get(token, "") for token in step.drafted),
                    "".join(token.text for token in tokens),
                ]
            )
    return Table(columns, rows)


TAB = RunTab(  # of the speculative lane, where there is one
    name="steps",
    title="Steps",
    plots=(
        Plot(
            name="cost",
            heading="Which steps pay",
            sentence="The time of each step, by part. The mark is the time that its tokens take "
            "autoregressively: a bar below it is a gain.",
            draw=_cost,
        ),
        Plot(
            name="yield",
            heading="Tokens of each step",
            sentence="Above the line, the tokens that the step emits; below it, drafted tokens "
            "that are rejected or never tested.",
            draw=_yield,
        ),
    ),
)
