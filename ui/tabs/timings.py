"""The time of a run, by part and by token."""

from __future__ import annotations

from itertools import zip_longest

from pipeline.decoding.events import AUTOREGRESSIVE, SPECULATIVE
from pipeline.trace.metrics import progress, seconds_by_part
from pipeline.trace.record import Lane, Trace
from ui.component import fields
from ui.plots.figure import Figure, Json, axes, axes_of_rows, bar_style, milliseconds
from ui.plots.plot import Plot
from ui.plots.table import Table
from ui.run.action import Action, Asked, StagedDisplay, Work
from ui.run.repeated import TIMES, Repeated, repeated
from ui.tabs.tab import RunTab

PARTS = (  # of a lane's time: name, pattern
    ("prefill", "."),
    ("draft", "/"),
    ("verify", ""),
    ("other", "x"),
)
_RACES = "races"  # the name of the view of repeated ones
_STYLES = {
    AUTOREGRESSIVE: {"color": "var(--mute)", "width": 2, "dash": "dash", "shape": "hv"},
    SPECULATIVE: {"color": "var(--brand)", "width": 2.5, "shape": "hv"},
}


def _lanes(trace: Trace) -> Figure:
    """Model time of each lane, by part."""
    times = {
        name: {part: milliseconds(seconds) for part, seconds in seconds_by_part(lane).items()}
        for name, lane in trace.lanes.items()
    }
    totals = {name: milliseconds(lane.total_s) for name, lane in trace.lanes.items()}
    data: list[Json] = [
        {
            "type": "bar",
            "x": [parts[part] for parts in times.values()],
            "y": list(times),
            "name": part,
            "orientation": "h",
            "marker": bar_style(f"--{part}-time", pattern),
            "hovertemplate": f"{part} %{{x:.1f}} ms<extra>%{{y}}</extra>",
        }
        for part, pattern in PARTS
    ]
    data.append(
        {
            "type": "scatter",
            "x": list(totals.values()),
            "y": list(totals),
            "text": [f" {total:.0f} ms" for total in totals.values()],
            "mode": "text",
            "textposition": "middle right",
            "textfont": {"color": "var(--ink)"},
            "cliponaxis": False,  # the text is in the margin
            "hoverinfo": "skip",
            "showlegend": False,
        }
    )
    longest = max(totals.values(), default=0) or 1
    title = "milliseconds of model time"
    layout = axes_of_rows(trace.created, title, 220, range=[0, longest], tickangle=0)
    layout["margin"]["r"] = 72

    def table() -> Table:
        names = [part for part, _ in PARTS]
        rows = [
            [
                name,
                *(f"{times[name][part]:.1f}" for part in names),
                f"{totals[name]:.1f}",
                str(len(lane.tokens)),
                str(len(lane.steps)),
                _per_token(lane),
            ]
            for name, lane in trace.lanes.items()
        ]
        parts = (f"{name.capitalize()} ms" for name in names)
        return Table(("Method", *parts, "Total ms", "Tokens", "Steps", "ms per token"), rows)

    return Figure(data, layout, table)


def _race(trace: Trace) -> Figure:
    """Tokens over each lane's own clock."""
    series = {name: _progress(lane) for name, lane in trace.lanes.items()}
    data: list[Json] = [
        {
            "type": "scatter",
            "x": clock,
            "y": count,
            "name": name,
            "mode": "lines",
            "line": _STYLES[name],
            "hovertemplate": f"tokens: %{{y}}<br>%{{x:.1f}} ms<extra>{name}</extra>",
        }
        for name, (clock, count) in series.items()
    ]

    def table() -> Table:
        columns = [f"{name.capitalize()}{what}" for name in series for what in (" ms", " tokens")]
        texts = [
            column
            for clock, count in series.values()
            for column in ([f"{at:.2f}" for at in clock], list(map(str, count)))
        ]
        return Table(tuple(columns), [list(row) for row in zip_longest(*texts, fillvalue="")])

    layout = axes(
        trace.created,
        "milliseconds of model time",
        "tokens",
        xaxis={"rangemode": "tozero"},
    )
    return Figure(data, layout, table)


def _progress(lane: Lane) -> tuple[list[float], list[int]]:
    """Milliseconds, and tokens."""
    points = progress(lane)
    return [milliseconds(point.time_s) for point in points], [point.tokens for point in points]


def _per_token(lane: Lane) -> str:
    each = lane.seconds_per_token
    return "" if each is None else f"{milliseconds(each):.2f}"


def _repeat(asked: Asked) -> tuple[Work, StagedDisplay]:
    def views(races: Repeated | None, _: str) -> dict[str, str]:
        return {_RACES: fields(line=races.line)} if races else {}

    work = repeated(asked.engine, asked.request)
    done = f"{TIMES} races done"
    return work, StagedDisplay(asked, "Racing", done, views, lambda races: races.complete)


TAB = RunTab(
    name="timings",
    title="Timings",
    line=_RACES,
    actions=(Action(name="repeat", label="Run ten times", start=_repeat),),
    plots=(
        Plot(
            name="lanes",
            heading="Where the time goes",
            sentence="Time spent in the models. Prefill reads the prompt; the draft model proposes "
            "tokens, the target verifies them.",
            draw=_lanes,
        ),
        Plot(
            name="race",
            heading="Tokens over time",
            sentence="Tokens generated, each method on its own clock. A speculative step adds "
            "several tokens at once.",
            draw=_race,
        ),
    ),
)
