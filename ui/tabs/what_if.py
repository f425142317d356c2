"""The speedup at another acceptance and draft length, on the costs measured in the run.

All predictions are made here, once a run; the page's script picks from them as a slider moves.

Below are the costs of forward passes as measured before runs, by which a draft length of `auto` and
the drafters that compare costs decide; see `Measurement`.
"""

from __future__ import annotations

from pipeline.decoding.economics import Measurement
from pipeline.decoding.events import AUTOREGRESSIVE, SPECULATIVE
from pipeline.engine import Engine, LocalEngine, local
from pipeline.request import DRAFT_LENGTHS
from pipeline.trace.metrics import Prediction, not_predicted, prediction, token_seconds_by_part
from pipeline.trace.record import Trace
from pipeline.words import percent
from ui.component import fields
from ui.plots.figure import Figure, Json, axes, axes_of_rows, bar_style, dashed, milliseconds
from ui.plots.plot import Plot
from ui.plots.table import Table
from ui.run.action import Action, Asked, StagedDisplay, Work
from ui.tabs.acceptance import assumptions, costs_sentence
from ui.tabs.other_pairs import OTHER_PAIRS, any_sizes, pays
from ui.tabs.tab import RunTab
from ui.tabs.timings import PARTS

_ACCEPTANCES = [step / 20 for step in range(21)]
_LENGTHS = [length for length in DRAFT_LENGTHS if length]
_BARS = {  # of milliseconds per token
    AUTOREGRESSIVE: "autoregressive,<br>measured",
    SPECULATIVE: "speculative,<br>measured",
    "what if": "what if,<br>predicted",
}
_MEASURE = "Measure the costs again"
_DECODING = [part for part in PARTS if part[0] != "prefill"]
_COSTS = "costs"  # the name of their view


def _about_pair(engine: Engine | None) -> str:
    return _costs_fields(engine.measured if isinstance(engine, LocalEngine) else None)


def _measure(asked: Asked) -> tuple[Work, StagedDisplay]:
    engine = local(asked.engine, _MEASURE)
    return engine.measure(asked.request), StagedDisplay(
        asked,
        "Measuring",
        "Costs measured",
        lambda costs, _: {_COSTS: _costs_fields(costs)} if costs else {},
    )


def _costs_fields(measured: Measurement | None) -> str:
    """The value of the costs' view; empty before any are measured."""
    line = f"{_costs_line(measured)} {_spread_line(measured)}" if measured else ""
    return fields(line=line)


def _costs_line(measured: Measurement) -> str:
    costs = measured.costs
    drafting = f"drafting a token {_ms(costs.draft)}"
    if costs.block_draft:
        drafting += f" with the draft model, or {_ms(costs.block_draft)} for a block of tokens"
    return (
        f"Measured before runs: a forward pass of the target takes {_ms(costs.verify[0])} for one "
        f"token and {_ms(costs.verify[-1])} for {len(costs.verify)}, and {_ms(costs.switch)} more "
        f"after a pass of another size; {drafting}."
    )


def _spread_line(measured: Measurement) -> str:
    spread = f"The times of like passes differ by {percent(measured.spread)}"
    if not measured.disturbed:
        return f"{spread} (distance of the quartiles)."
    return (
        f"{spread} (distance of the quartiles): something else used the processor. A later run "
        "that needs these costs measures them again."
    )


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"


def details(trace: Trace) -> Json:
    """The predictions by acceptance and by draft length; or else the reason why there are none."""
    run = prediction(trace)
    if run is None:
        reason = f"No prediction: {not_predicted(trace)}."
        return {"state": "none", "reason": reason, "grid": None, "sizes": None}
    acceptances = _acceptances(run)
    each = [[run.at(a, k) for k in _LENGTHS] for a in acceptances]
    break_even = [one.model.break_even for one in each[0]]
    grid = {
        "acceptances": acceptances,
        "speedup": [[round(one.model.speedup, 4) for one in row] for row in each],
        "milliseconds": [[_milliseconds(one) for one in row] for row in each],
        "words": [[_words(one) for one in row] for row in each],
        "break_even": [even if even is None else round(even, 4) for even in break_even],
        "run": {
            "acceptance": acceptances.index(round(run.model.acceptance, 4)),
            "length": run.model.length,
        },
    }
    return {"state": "known", "reason": "", "grid": grid, "sizes": any_sizes(trace)}


def _milliseconds(one: Prediction) -> list[float]:
    return [milliseconds(one.seconds_by_part[part]) for part, _ in _DECODING]


def _words(one: Prediction) -> str:
    model = one.model
    draft, verify, other = (percent(one.shares[part]) for part, _ in _DECODING)
    return (
        f"drafting {draft}, verifying {verify}, other {other} of the time · with K = "
        f"{model.length}, drafting pays {pays(model)} · best draft length at this acceptance: "
        f"{model.best_length(DRAFT_LENGTHS) or '0, no drafting'}"
    )


def _acceptances(run: Prediction | None) -> list[float]:
    """Those that are shown, the run's own among them."""
    own = [round(run.model.acceptance, 4)] if run else []
    return sorted({*_ACCEPTANCES, *own})


def _speedups(trace: Trace) -> Figure:
    """The predicted speedup over the acceptance, at the run's draft length; and the run. The script
    finds by their `meta` what a slider moves.
    """
    layout = axes(
        trace.created,
        "share of drafts accepted, a",
        "speedup",
        xaxis={"range": [-0.02, 1.02], "tickformat": ".0%"},
    )
    run, speedup = prediction(trace), trace.speedup
    if run is None or speedup is None:
        return Figure([], layout, lambda: _speedups_table(None))
    acceptances, even = _acceptances(run), run.model.break_even
    curve = [run.at(a, run.model.length).model.speedup for a in acceptances]
    data: list[Json] = [
        {
            "meta": "curve",
            "x": acceptances,
            "y": [round(speedup, 4) for speedup in curve],
            "name": "predicted",
            "mode": "lines",
            "line": {"color": "var(--brand)", "width": 2, "dash": "dot"},
            "hovertemplate": "a = %{x:.0%}<br>predicted %{y:.2f}×<extra></extra>",
        },
        {
            "meta": "even",
            "x": [] if even is None else [round(even, 4)],
            "y": [] if even is None else [1.0],
            "name": "break-even, predicted",
            "mode": "markers",
            "marker": _marker("x-thin-open", 10, "--ink"),
            "hovertemplate": "break-even at a = %{x:.0%}<extra></extra>",
        },
        {
            "meta": "here",
            "x": [round(run.model.acceptance, 4)],
            "y": [round(run.model.speedup, 4)],
            "name": "as set above, predicted",
            "mode": "markers",
            "marker": _marker("circle-open", 13, "--brand"),
            "hovertemplate": "a = %{x:.0%}<br>predicted %{y:.2f}×<extra></extra>",
        },
        {
            "meta": "run",
            "x": [round(run.model.acceptance, 4)],
            "y": [round(speedup, 4)],
            "name": f"this run, measured: {speedup:.2f}×",
            "mode": "markers",
            "marker": {"symbol": "diamond", "size": 12, "color": "var(--ink)"},
            "hovertemplate": f"a = %{{x:.0%}}, K = {run.model.length}<br>measured %{{y:.2f}}×"
            "<extra></extra>",
        },
    ]
    layout["shapes"] = [dashed("y", 1)]
    data = [{"type": "scatter", **each} for each in data]
    return Figure(data, layout, lambda: _speedups_table(run), _note(trace, run))


def _marker(symbol: str, size: int, colour: str) -> Json:
    line = {"width": 2.5, "color": f"var({colour})"}
    return {"symbol": symbol, "size": size, "color": f"var({colour})", "line": line}


def _speedups_table(run: Prediction | None) -> Table:
    columns = ("Acceptance %", *(f"Predicted, K = {k}" for k in _LENGTHS))
    rows = [
        [f"{100 * a:.0f}", *(f"{run.at(a, k).model.speedup:.3f}" for k in _LENGTHS)]
        for a in _acceptances(run)
        if run
    ]
    return Table(columns, rows)


def _note(trace: Trace, run: Prediction) -> str:
    model, fast = run.model, trace.speculative
    words = (
        f"{costs_sentence(model)}. {assumptions(trace)} Predicted at its own a and "
        f"K = {model.length}: {model.speedup:.2f}×."
    )
    if trace.request.get("draft_length") == "auto":
        words += " Its draft length was auto; K is the median."
    if fast and fast.undrafted:
        words += f" Nothing was drafted in {fast.undrafted} of its {len(fast.steps)} steps; a "
        words += "prediction drafts in every step."
    return words


def _parts(trace: Trace) -> Figure:
    """Milliseconds per token by part: of both methods, and as predicted, which a slider moves."""
    layout = axes_of_rows(trace.created, "milliseconds per token", 220)
    run = prediction(trace)
    if run is None:
        return Figure([], layout, lambda: _parts_table(trace, None))
    bars = [token_seconds_by_part(lane) for lane in trace.lanes.values()]
    bars.append(run.seconds_by_part)
    data: list[Json] = [
        {
            "type": "bar",
            "x": [milliseconds(parts[part]) for parts in bars],
            "y": [*_BARS.values()],
            "name": part,
            "orientation": "h",
            "marker": bar_style(f"--{part}-time", pattern),
            "hovertemplate": f"{part} %{{x:.2f}} ms per token<extra>%{{y}}</extra>",
        }
        for part, pattern in _DECODING
    ]
    layout["shapes"] = [dashed("x", milliseconds(run.token_s), "--ink")]
    return Figure(data, layout, lambda: _parts_table(trace, run))


def _parts_table(trace: Trace, run: Prediction | None) -> Table:
    columns = ("Time", "Acceptance %", "K", *(f"{part.capitalize()} ms" for part, _ in _DECODING))
    measured = [
        [f"{name}, measured", "", "", *_cells(token_seconds_by_part(lane))]
        for name, lane in trace.lanes.items()
    ]
    predicted = [
        ["predicted", f"{100 * a:.0f}", str(k), *_cells(run.at(a, k).seconds_by_part)]
        for a in _acceptances(run)
        for k in _LENGTHS
        if run
    ]
    return Table(columns, measured + predicted)


def _cells(parts: dict[str, float]) -> list[str]:
    return [f"{milliseconds(parts[part]):.3f}" for part, _ in _DECODING]


TAB = RunTab(
    name="whatif",
    line=_COSTS,
    about_pair=_about_pair,
    title="What if",
    plots=(
        Plot(
            name="speedups",
            heading="Predicted speedup by acceptance",
            sentence="Over autoregressive decoding, at the draft length set above, with the costs "
            "of this run. The curve crosses the dashed line where drafting begins to pay.",
            draw=_speedups,
        ),
        Plot(
            name="parts",
            heading="Time of a token",
            sentence="Decoding only. A bar that ends left of the dashed line is faster than "
            "autoregression.",
            draw=_parts,
        ),
        OTHER_PAIRS,
    ),
    template="whatif/whatif.html",
    scripts=("view/fields", "whatif/whatif"),
    details=details,
    actions=(Action(name="measure-costs", label=_MEASURE, start=_measure),),
)
