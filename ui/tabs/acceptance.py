"""Acceptance rates of drafted tokens, and the predicted speedup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from pipeline.decoding.economics import CostModel
from pipeline.request import DRAFT_LENGTHS
from pipeline.trace.metrics import (
    BIN,
    TESTED,
    Acceptance,
    acceptance_by_confidence,
    acceptance_by_position,
    contradicts,
    measured,
)
from pipeline.trace.record import StepRecord, Trace
from pipeline.trace.rejections import CAUSES, SURE, rejections
from pipeline.words import counted, percent
from ui.plots.figure import Figure, Json, axes, axes_of_rows, bar_style, dashed
from ui.plots.plot import Plot
from ui.plots.table import Table
from ui.tabs.tab import RunTab


def _positions(trace: Trace) -> Figure:
    found = acceptance_by_position(_steps(trace))
    positions = [str(position) for position in range(1, len(found) + 1)]
    missing = "No drafted token was tested in this run."
    figure = _rates(trace, "position in the draft", positions, found, missing)
    drafts = [step for step in _steps(trace) if step.drafted and not step.copied]
    reached = trace.draft_model.get("acceptance")
    if not (drafts and reached):
        return figure
    shown = [*zip(positions, reached, strict=False)]
    figure.data.append(
        {
            "type": "scatter",
            "x": [position for position, _ in shown],
            "y": [share for _, share in shown],
            "name": "this draft on held-out questions",
            "mode": "markers",
            "marker": {"symbol": "diamond-open", "size": 11, "color": "var(--ink)"},
            "hovertemplate": "held-out questions, position %{x}: %{y:.0%}<extra></extra>",
        }
    )
    here = Acceptance(len(drafts), sum(step.accepted > 0 for step in drafts))
    return replace(figure, note=_beside_held_out(here, reached[0]))


def _steps(trace: Trace) -> Sequence[StepRecord]:
    return trace.speculative.steps if trace.speculative else ()


def _beside_held_out(here: Acceptance, reached: float) -> str:
    """Whether the draft guesses as well as on held-out questions, by the first token of a draft."""
    low, high = here.interval
    told = (
        f"the first token of a draft was accepted in {percent(here.rate)} of "
        f"{counted(here.tested, 'round')}, and on held-out questions in {percent(reached)}"
    )
    if reached > high:
        return (
            f"Harder to guess than what this draft was made for: {told}. If every prompt is, check "
            "that target, draft and prompt format are those that belong together."
        )
    expected = "Easier to guess than" if reached < low else "As easy to guess as"
    return f"{expected} what this draft was made for: {told}."


def _reliability(trace: Trace) -> Figure:
    """Acceptance by the draft model's probability of the token; the diagonal is a draft whose
    confidence is right.
    """
    found = acceptance_by_confidence(trace.speculative) if trace.speculative else {}
    bins = [f"{low}–{low + BIN} %" for low in found]
    axis = "draft model’s probability of the token"
    missing = "No draft of a model was tested in this run."
    figure = _rates(trace, axis, bins, [*found.values()], missing)
    if found:
        figure.data.append(
            {
                "type": "scatter",
                "x": bins,
                "y": [(low + BIN / 2) / 100 for low in found],
                "name": "as confident as accepted",
                "mode": "lines",
                "line": {"color": "var(--mute)", "width": 1, "dash": "dash"},
                "hoverinfo": "skip",
            }
        )
    return figure


def _rates(
    trace: Trace, axis: str, labels: list[str], found: Sequence[Acceptance], missing: str
) -> Figure:
    """Bars of acceptance rates, with their intervals and the number of tests.

    Args:
        axis: its title.
        labels: of the bars on it.
        missing: the note where there are none.
    """
    layout = axes(
        trace.created,
        axis,
        "share accepted",
        bargap=0.4,
        xaxis={"type": "category"},
        yaxis={"range": [0, 1.02], "tickformat": ".0%"},
    )
    data: list[Json] = [
        {
            "type": "bar",
            "x": labels,
            "y": [each.rate for each in found],
            "name": "accepted",
            "marker": bar_style("--accepted", "", "--accepted-edge"),
            "error_y": {
                "type": "data",
                "array": [each.interval[1] - each.rate for each in found],
                "arrayminus": [each.rate - each.interval[0] for each in found],
                "color": "var(--ink)",
                "thickness": 1,
            },
            "customdata": [[each.tested, each.accepted] for each in found],
            "hovertemplate": f"{axis} %{{x}}<br>%{{customdata[1]}} of %{{customdata[0]}}, "
            "%{y:.0%}<extra></extra>",
            "showlegend": False,
        },
        {
            "type": "scatter",  # at the bottom of the bars, below the whiskers
            "x": labels,
            "y": [0.02] * len(labels),
            "text": [f"n = {each.tested}" for each in found],
            "mode": "text",
            "textposition": "top center",
            "textfont": {"color": "var(--ink)"},
            "hoverinfo": "skip",
            "showlegend": False,
        },
    ]

    def table() -> Table:
        rows = [
            [label, str(each.tested), str(each.accepted)]
            + [f"{100 * share:.0f}" for share in (each.rate, *each.interval)]
            for label, each in zip(labels, found, strict=True)
        ]
        heading = f"{axis[0].upper()}{axis[1:]}"
        return Table((heading, "Tested", "Accepted", "Rate %", "95 % from", "95 % to"), rows)

    return Figure(data, layout, table, "" if found else missing)


def _rejections(trace: Trace) -> Figure:
    """How many rejections have which cause, the most frequent first."""
    found = rejections(trace)
    counts = Counter(each.cause for each in found).most_common()
    height = 64 + 40 * max(3, len(counts))
    layout = axes_of_rows(trace.created, "rejected drafts", height)
    data: list[Json] = [
        {
            "type": "bar",
            "x": [count for _, count in counts],
            "y": [CAUSES[cause].label for cause, _ in counts],
            "orientation": "h",
            "marker": bar_style("--resampled", "/", "--resampled-edge"),
            "customdata": [CAUSES[cause].title for cause, _ in counts],
            "hovertemplate": "%{customdata}: %{x}<extra></extra>",
            "showlegend": False,
        }
    ]

    def table() -> Table:
        examples = {each.cause: each.told for each in reversed(found)}
        rows = [
            [title, str(count), percent(count / len(found)), examples[cause], remedy]
            for cause, count in counts
            for _, title, remedy in [CAUSES[cause]]
        ]
        return Table(("Where it was rejected", "Drafts", "Share", "First", "What to try"), rows)

    lane = trace.speculative
    if not (counts and lane and lane.tested):
        return Figure(data, layout, table, "No draft was rejected in this run.")
    cause, count = counts[0]
    first = next(each for each in found if each.cause == cause)
    now, without = (each / lane.tested for each in (lane.accepted, lane.accepted + count))
    note = (
        f"Most often ({count} of {len(found)}): {CAUSES[cause].title}. In step {first.step + 1} "
        f"the draft was {first.told}. Were these accepted, acceptance would be {percent(without)} "
        f"instead of {percent(now)}. What to try: {CAUSES[cause].remedy}."
    )
    return Figure(data, layout, table, note)


def _predicted(trace: Trace) -> Figure:
    """The speedup that the cost model predicts for every draft length, and the measured one."""
    model, speedup = measured(trace), trace.speedup
    columns = ("K", "Expected tokens per step", "Cost in target steps", "Predicted", "Measured")
    layout = axes(trace.created, "draft length K", "speedup")
    if model is None or speedup is None:
        note = f"The prediction needs both methods, and {TESTED} drafted tokens that were tested."
        return Figure([], layout, lambda: Table(columns, []), note)
    lengths = [replace(model, length=length) for length in DRAFT_LENGTHS]
    data: list[Json] = [
        {
            "type": "scatter",
            "x": list(DRAFT_LENGTHS),
            "y": [round(each.speedup, 4) for each in lengths],
            "name": "predicted",
            "mode": "lines+markers",
            "line": {"color": "var(--brand)", "width": 2, "dash": "dot"},
            "marker": {"symbol": "circle-open", "size": 8},
            "hovertemplate": "K = %{x}<br>predicted %{y:.2f}×<extra></extra>",
        },
        {
            "type": "scatter",
            "x": [model.length],
            "y": [round(speedup, 4)],
            "name": "measured",
            "mode": "markers+text",
            "text": [f" {speedup:.2f}×"],
            "textposition": "bottom right",
            "textfont": {"color": "var(--ink)"},
            "marker": {"symbol": "diamond", "size": 13, "color": "var(--ink)"},
            "hovertemplate": "K = %{x}<br>measured %{y:.2f}×<extra></extra>",
        },
    ]
    highest = max(speedup, *(each.speedup for each in lengths))
    layout["shapes"] = [dashed("y", 1)]
    layout["yaxis"]["range"] = [0, 1.15 * highest]
    layout["xaxis"]["tickvals"] = list(DRAFT_LENGTHS)

    def table() -> Table:
        rows = [_row(each, speedup if each.length == model.length else None) for each in lengths]
        return Table(columns, rows)

    return Figure(data, layout, table, _note(model, trace))


def _row(model: CostModel, speedup: float | None) -> list[str]:
    figures = (model.block_efficiency, model.cost, model.speedup)
    shown = "" if speedup is None else f"{speedup:.3f}"
    return [str(model.length), *(f"{figure:.3f}" for figure in figures), shown]


def _note(model: CostModel, trace: Trace) -> str:
    auto = trace.request.get("draft_length") == "auto"
    length = "median draft length" if auto else "draft length"
    return (
        f"{thresholds(model, trace.speedup)} {costs_sentence(model)}; {length}, "
        f"K = {model.length}. {assumptions(trace)}"
    )


def costs_sentence(model: CostModel) -> str:
    """What a run measured for its cost model, without a full stop."""
    drafted = "all tokens at once" if model.costs.block_draft else "a token"
    return (
        f"Measured in this run: share of drafts accepted, a = {percent(model.acceptance)}; time to "
        f"draft {drafted}, c = {model.draft:.2f} target steps; extra time to verify, "
        f"v = {model.verify:.2f} target steps"
    )


def assumptions(trace: Trace) -> str:
    """What the predictions of a run take from where."""
    passes = "the time to verify as that of its own drafts, for every K"
    if trace.pair.get("pass_costs"):
        passes = "the time to verify other K by forward passes that were measured before runs"
    return f"A prediction takes the acceptance at each position of this run's drafts, and {passes}."


def thresholds(model: CostModel, speedup: float | None) -> str:
    """From which acceptance drafting pays, as far as the run carries it."""
    if contradicts(model, speedup):
        return (
            f"By the medians of its steps it would be {model.speedup:.2f}× as fast, and it was "
            f"{speedup:.2f}×: this run is too short or too uneven to say from where drafting pays."
        )
    even, best = model.break_even, model.best_length(DRAFT_LENGTHS)
    pays = "does not pay at any acceptance"
    if even is not None:
        pays = f"pays from an acceptance of {percent(even)}"
    return (
        f"Drafting K = {counted(model.length, 'token')} {pays}; the best draft length is "
        f"{best or '0, no drafting'}."
    )


TAB = RunTab(
    name="acceptance",
    title="Acceptance",
    plots=(
        Plot(
            name="positions",
            heading="Acceptance by position in the draft",
            sentence="Share of the drafted tokens tested at each position that are accepted. "
            "Tokens after a rejection are not tested. Whiskers are 95 % intervals.",
            draw=_positions,
        ),
        Plot(
            name="rejections",
            heading="Why drafts were rejected",
            sentence="Each first rejection of a round has one cause, by the likeliest tokens of "
            f"both models there. A model is sure of a token above {percent(SURE)}.",
            draw=_rejections,
        ),
        Plot(
            name="reliability",
            heading="Reliability of the draft’s confidence",
            sentence="Share accepted of the tokens to which the draft model gave such a "
            "probability. At the dashed line its confidence is right; above, drafts could be "
            "longer; below, it is sure of tokens that the target refuses.",
            draw=_reliability,
        ),
        Plot(
            name="predicted",
            heading="Predicted and measured speedup",
            sentence="Speedup over autoregressive decoding that the cost model predicts for each "
            "draft length, from the acceptance and the times of this run.",
            draw=_predicted,
        ),
    ),
)
