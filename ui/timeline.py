"""The steps of both methods over their own clocks, below the two answers."""

from __future__ import annotations

import math

from pipeline.trace.explanation import drafting
from pipeline.trace.metrics import outlier_limit
from pipeline.trace.record import Lane, Trace
from pipeline.words import counted
from ui.plots.figure import Figure, Json, axes, bar_style, milliseconds
from ui.plots.plot import Plot
from ui.tabs.steps import TIMES, cut_note, steps_table
from ui.tabs.tab import RunTab

_HEIGHT = 190  # pixels, which `timeline.css` reserves
_LEFT = 44  # pixels for the labels of the axes
_GAP = 0.16  # between the rows, as a share of the height: for the label of the lower one
_LOWEST = 0.5  # of a row, as a share of the other's height


def _timeline(trace: Trace) -> Figure:
    """A row of bars for each lane: a step is as wide and as high as its time. All rows have the
    same scale.
    """
    costs = {
        name: [milliseconds(step.seconds) for step in lane.steps]
        for name, lane in trace.lanes.items()
    }
    ends = {name: 1.1 * max(steps, default=0.0) for name, steps in costs.items()}
    kept = [outlier_limit(steps) or ends[name] for name, steps in costs.items()]
    highest = max(kept, default=0.0) or 1.0  # longer bars are cut off there
    tops = {name: min(max(end, _LOWEST * highest), highest) for name, end in ends.items()}
    longest = max((milliseconds(lane.total_s) for lane in trace.lanes.values()), default=0.0)
    tick = _tick(0.8 * min(tops.values(), default=1.0))
    data: list[Json] = []
    labels: list[Json] = []
    layout = axes(
        trace.created,
        "",
        "",
        height=_HEIGHT,
        bargap=0,
        uniformtext={"minsize": 11, "mode": "hide"},  # where a bar is too narrow
        margin={"l": _LEFT, "t": 18, "b": 42},
        legend={"y": -0.2, "yanchor": "top"},
        xaxis={
            "range": [0, longest or 1.0],
            "anchor": "free",
            "position": 0,
            "tickangle": 0,
            "ticksuffix": " ms",
            "showticksuffix": "last",
        },
        yaxis={"fixedrange": True, "tickvals": [tick], "ticktext": [f"{tick:g} ms"]},
    )
    share = (1 - _GAP * (len(tops) - 1)) / sum(tops.values())  # of the height, per millisecond
    upper = 1.0
    for number, (name, lane) in enumerate(trace.lanes.items(), 1):
        suffix, top = "" if number == 1 else str(number), tops[name]
        lower = max(0.0, upper - share * top)
        data += _bars(trace, name, f"y{suffix}", top, legend=number == 1)
        layout[f"yaxis{suffix}"] = layout["yaxis"] | {"range": [0, top], "domain": [lower, upper]}
        labels.append(_label(name, lane, upper))
        upper = lower - _GAP
    layout["annotations"] = labels
    cut = {
        f"{name} {number}": cost
        for name, steps in costs.items()
        for number, cost in enumerate(steps, 1)
        if cost > highest
    }
    note = cut_note(cut, highest) if cut else ""
    return Figure(data, layout, lambda: steps_table(trace), note)


def _tick(highest: float) -> float:
    """The largest 1, 2 or 5 times a power of ten up to there: one tick is enough for a low row."""
    power = 10.0 ** math.floor(math.log10(highest))
    return max(factor * power for factor in (1, 2, 5) if factor * power <= highest)


def _bars(trace: Trace, name: str, axis: str, top: float, legend: bool) -> list[Json]:
    """The parts of a lane's steps, stacked; and its prefill as a band, which is not a step."""
    lane = trace.lanes[name]
    widths = [milliseconds(step.seconds) for step in lane.steps]
    common: Json = {
        "type": "bar",
        "yaxis": axis,
        "showlegend": legend,
        "x": [milliseconds(step.time_s - step.seconds / 2) for step in lane.steps],  # of the middle
        "width": widths,
        "meta": name,  # by which the script finds the bars of a lane
    }
    parts: list[Json] = [
        {
            **common,
            "y": [milliseconds(getattr(step, field)) for step in lane.steps],
            "name": part,
            "legendgroup": part,
            "marker": bar_style(f"--{part}-time", pattern),
            "hovertemplate": f"{part} %{{y:.2f}} ms<extra>{name}</extra>",
        }
        for field, (part, pattern) in TIMES.items()
    ]
    draft, verify, _ = parts
    draft |= {
        "customdata": [drafting(trace, len(step.drafted), step.copied) for step in lane.steps],
        "hovertemplate": f"draft %{{y:.2f}} ms<br>%{{customdata}}<extra>{name}</extra>",
    }
    verify |= {  # the largest part, and so the one that has the words
        "text": [str(len(tokens)) for tokens in lane.emitted],
        "customdata": [
            [step.index + 1, width] for step, width in zip(lane.steps, widths, strict=True)
        ],
        "hovertemplate": "step %{customdata[0]}, %{customdata[1]:.2f} ms<br>tokens: %{text}<br>"
        f"verify %{{y:.2f}} ms<extra>{name}</extra>",
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"color": "var(--on-brand)", "size": 11},
        "constraintext": "inside",
    }
    prefill = milliseconds(lane.prefill_s)
    band: Json = {
        "type": "bar",
        "yaxis": axis,
        "showlegend": legend,
        "x": [prefill / 2],
        "y": [top],
        "width": [prefill],
        "name": "prefill",
        "legendgroup": "prefill",
        "marker": bar_style("--soft", ".", "--prefill-time"),
        "hovertemplate": f"prefill {prefill:.1f} ms<extra>{name}</extra>",
    }
    return [band, *parts]


def _label(name: str, lane: Lane, top: float) -> Json:
    """The lane in words, above its row."""
    step_s = lane.median_step_s
    each = "" if step_s is None else f", median {milliseconds(step_s):.1f} ms"
    return {
        "xref": "paper",
        "yref": "paper",
        "x": 0,
        "y": top,
        "xshift": -_LEFT,
        "xanchor": "left",
        "yanchor": "bottom",
        "text": f"<b>{name.capitalize()}</b> · {counted(len(lane.steps), 'step')}{each}",
        "font": {"color": "var(--ink)", "size": 12},
        "align": "left",
        "showarrow": False,
        "borderpad": 0,
    }


TIMELINE = RunTab(  # drawn as a tab is, and always in sight
    name="timeline",
    title="Steps over time",
    plots=(
        Plot(
            name="timeline",
            heading="Steps over time",
            sentence="A bar is one forward pass of the target, with the drafting before it, as "
            "wide and as high as its time. The number counts its tokens, where it fits.",
            draw=_timeline,
        ),
    ),
    scripts=("timeline/timeline",),
)
