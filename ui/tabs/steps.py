"""What each target run cost, and what it yielded."""

from __future__ import annotations

from pipeline.trace.metrics import LOST, break_even_s, outlier_limit, yields
from pipeline.trace.record import AUTOREGRESSIVE, SPECULATIVE, Trace
from ui.plots.figure import (
    Figure,
    Json,
    axes,
    bar_style,
    milliseconds,
    run_axis,
    shown_lane,
)
from ui.plots.plot import Plot
from ui.plots.table import Table
from ui.tabs.tab import RunTab
from ui.tabs.timings import PARTS

_TIMES = {f"{part}_s": (part, pattern) for part, pattern in PARTS if part != "prefill"}
_YIELD = (  # what: its colour, its pattern, its edge; the first four were made, the others lost
    ("accepted", "--accepted", "", "--accepted-edge"),
    ("resampled", "--resampled", "/", "--resampled-edge"),
    ("bonus", "--bonus", ".", "--bonus-edge"),
    ("target", "--card", "", "--mute"),
    ("rejected", "--soft", "x", "--mute"),
    ("unused", "--soft", "-", "--mute"),
)
_MARKED = 14  # pixels of the widest mark
_NAMED = 5  # cut values that a note names


def _cost(trace: Trace) -> Figure:
    """Its parts, stacked; and what its tokens take where they are made one by one."""
    name, lane = shown_lane(trace)
    runs = [step.index + 1 for step in lane.steps]
    data: list[Json] = [
        {
            "type": "bar",
            "x": runs,
            "y": [milliseconds(getattr(step, field)) for step in lane.steps],
            "name": part,
            "marker": bar_style(f"--{part}-time", pattern),
            "hovertemplate": f"run %{{x}}<br>{part} %{{y:.2f}} ms<extra>{name}</extra>",
        }
        for field, (part, pattern) in _TIMES.items()
    ]
    layout = axes(trace.created, "target run", "milliseconds", xaxis=run_axis(lane))
    notes = []
    evens = [milliseconds(seconds) for seconds in break_even_s(trace, lane)]
    if evens:
        data += _marks(runs, evens)
    else:
        notes.append("No break-even here: it takes an autoregressive lane.")
    costs = {step.index + 1: milliseconds(step.seconds) for step in lane.steps}
    if limit := outlier_limit(list(costs.values())):
        limit = max([limit, *(1.05 * even for even in evens)])
        cut = {run: cost for run, cost in costs.items() if cost > limit}
        if cut:
            layout["yaxis"]["range"] = [0, limit]
            data.append(_arrows(cut, limit, len(runs)))
            notes.append(_cut_note(cut, limit))
    return Figure(data, layout, lambda: steps_table(trace), " ".join(notes))


def _marks(runs: list[int], evens: list[float]) -> list[Json]:
    """With a rim, or a mark within a dark bar would not be seen."""

    def lines(colour: str, width: int) -> Json:
        return {
            "type": "scatter",
            "x": runs,
            "y": evens,
            "mode": "markers",
            "marker": {
                "symbol": "line-ew-open",
                "size": max(3.0, min(_MARKED, 800 / max(1, len(runs)))),
                "color": f"var({colour})",
                "line": {"color": f"var({colour})", "width": width},
            },
        }

    return [
        lines("--card", 6) | {"name": "rim", "hoverinfo": "skip", "showlegend": False},
        lines("--ink", 2)
        | {
            "name": "break-even",
            "hovertemplate": "run %{x}<br>break-even %{y:.2f} ms<extra></extra>",
        },
    ]


def _arrows(cut: dict[int, float], limit: float, runs: int) -> Json:
    """Where a bar is longer than the axis: how long it is, on the side where there is room."""
    return {
        "type": "scatter",
        "x": list(cut),
        "y": [0.97 * limit] * len(cut),
        "text": [f" {cost:.0f} ms " for cost in cut.values()],
        "mode": "markers+text",
        "textposition": [f"middle {'right' if run <= runs / 2 else 'left'}" for run in cut],
        "textfont": {"color": "var(--ink)"},
        "name": "cut off",
        "marker": {
            "symbol": "triangle-up",
            "size": 11,
            "color": "var(--ink)",
            "line": {"color": "var(--card)", "width": 1},
        },
        "hovertemplate": "run %{x}<br>in all%{text}<extra>cut off</extra>",
    }


def _cut_note(cut: dict[int, float], limit: float) -> str:
    named = [f"run {run} ({cost:.0f} ms)" for run, cost in list(cut.items())[:_NAMED]]
    if more := len(cut) - len(named):
        named.append(f"{more} more")
    return f"Cut off at {limit:.0f} ms, so that the others can be read: {', '.join(named)}."


def _yield(trace: Trace) -> Figure:
    """Tokens made, above; drafts that came to nothing, below."""
    _, lane = shown_lane(trace)
    counts = yields(lane)
    runs = [step.index + 1 for step in lane.steps]
    data: list[Json] = [
        {
            "type": "bar",
            "x": runs,
            "y": [(-1 if what in LOST else 1) * count[what] for count in counts],
            "customdata": [count[what] for count in counts],
            "name": what,
            "marker": bar_style(colour, pattern, edge),
            "hovertemplate": f"run %{{x}}<br>%{{customdata}} {what}<extra></extra>",
        }
        for what, colour, pattern, edge in _YIELD
        if what != "target" or any(count[what] for count in counts)
    ]
    most = max((step.accepted + 1 for step in lane.steps), default=1)
    least = max((sum(count[what] for what in LOST) for count in counts), default=0)
    ticks = range(-least, most + 1, 1 if most + least <= 10 else 2)
    layout = axes(
        trace.created,
        "target run",
        "lost | made",
        barmode="relative",
        xaxis=run_axis(lane),
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
            [str(run), *(str(count[what]) for what in names)]
            for run, count in zip(runs, counts, strict=True)
        ]
        return Table(("Run", *(name.capitalize() for name in names)), rows)

    return Figure(data, layout, table)


def steps_table(trace: Trace) -> Table:
    """Every target run of both lanes, the speculative first."""
    columns = (
        *("Lane", "Run", "Draft ms", "Verify ms", "Other ms", "In all ms", "Break-even ms"),
        *("Drafted", "Tested", "Accepted", "Made", "Drafted text", "Made text"),
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
                    *(f"{milliseconds(getattr(step, field)):.2f}" for field in _TIMES),
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
            heading="What each target run cost",
            sentence="Model time by part. The mark is what the run’s tokens take one by one: a bar "
            "that stays below its mark has won.",
            draw=_cost,
        ),
        Plot(
            name="yield",
            heading="What each target run yielded",
            sentence="Above the line, the tokens it made; below it, drafts that came to nothing.",
            draw=_yield,
        ),
    ),
)
