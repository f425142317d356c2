"""What drafting would gain with the registry's other pairs, or with a pair of any sizes, none of
which needs to be downloaded.

Only ratios are predicted: a pass of a draft model costs its share of the target's bytes, and a pass
of several tokens what it costs here. Both were compared with measurements of Dolly v2 3B's size,
see `tests/test_tabs.py`.
"""

from __future__ import annotations

from dataclasses import replace

from pipeline.decoding.economics import CostModel, Costs
from pipeline.models.pairs import BITS, PAIRS, Pair
from pipeline.request import DRAFT_LENGTHS
from pipeline.trace.metrics import not_predicted, prediction
from pipeline.trace.record import Trace
from pipeline.words import percent
from ui.plots.figure import Figure, Json, axes_of_rows, bar_style, dashed
from ui.plots.plot import Plot
from ui.plots.table import Table

_COLUMNS = (
    *("Pair", "Target, parameters", "Draft", "Memory GB", "c", "v"),
    *("Best K", "Pays from %", "Predicted"),
)
_SHARES = [2 ** (-step / 8) for step in range(81)]  # from 1 to a thousandth, 9 % apart


def expected(share: float, run: CostModel) -> CostModel:
    """The cost model of a pair at the acceptance of a run, and at the draft length that is best
    then.

    Args:
        share: of its draft model in the bytes of its target; it drafts one token a pass.
    """
    model = replace(run, costs=Costs(share, run.costs.verify))
    return replace(model, length=model.best_length(DRAFT_LENGTHS))


def any_sizes(trace: Trace) -> Json | None:
    """What the script needs for a pair of any sizes: the prediction for each share of a draft model
    in its target; and for each precision of the weights, the milliseconds that a billion of them
    takes a token if each byte takes as long as it did in the run, which is more than a larger model
    than the run's needs, of so many milliseconds. None without a prediction, or where the trace
    does not say how large the target is.
    """
    run, slow, size = prediction(trace), trace.autoregressive, trace.pair["target"].get("bytes")
    if not (run and slow and slow.median_step_s and size):
        return None
    models = {share: expected(share, run.model) for share in _SHARES}
    step_ms = 1e3 * slow.median_step_s
    return {
        "shares": [*models],
        "words": [
            f"{model.speedup:.2f}× predicted with K = {model.length} · at this run’s acceptance, "
            f"{percent(model.acceptance)} · it pays {pays(model)}"
            for model in models.values()
        ],
        "milliseconds": {name: bits / 8 * 1e9 * step_ms / size for name, bits in BITS.items()},
        "least": step_ms,
    }


def pays(model: CostModel) -> str:
    """From where drafting pays, in words."""
    even = model.break_even
    return "at no acceptance" if even is None else f"from an acceptance of {percent(even)}"


def _draw(trace: Trace) -> Figure:
    run = prediction(trace)
    others = [pair for pair in PAIRS.values() if pair.draft and pair.name != trace.pair["name"]]
    models = [expected(share_of(pair), run.model) for pair in others] if run else []
    highest = max((model.speedup for model in models), default=1.0)
    height = 64 + 32 * len(others)
    layout = axes_of_rows(trace.created, "speedup", height, range=[0, 1.2 * highest])
    layout["shapes"] = [dashed("x", 1, "--ink")]
    data: list[Json] = [
        {
            "type": "bar",
            "x": [round(model.speedup, 2) for model in models],
            "y": [pair.name for pair in others] if models else [],
            "text": [f"{model.speedup:.1f}×" for model in models],
            "textposition": "outside",
            "cliponaxis": False,
            "orientation": "h",
            "marker": bar_style("--accepted", "/", "--accepted-edge"),
            "customdata": [model.length for model in models],
            "hovertemplate": "%{y}<br>predicted %{x:.2f}× with K = %{customdata}<extra></extra>",
            "showlegend": False,
        }
    ]

    def table() -> Table:
        rows = [_row(*each) for each in zip(others, models, strict=False)]
        return Table(_COLUMNS, rows)

    if run is None:
        return Figure([], layout, table, f"No prediction: {not_predicted(trace)}.")
    note = (
        f"All predicted, at this run's acceptance, a = {percent(run.model.acceptance)}, which "
        "another pair need not reach, and at the K that is best then. A draft pass is taken to "
        "cost its share of the target's bytes, a longer pass of the target as much as here. For "
        "Dolly v2 3B's size both were measured once: 0.08 instead of 0.06 target steps for a draft "
        "pass, and 1.19 instead of 1.37 for five tokens."
    )
    return Figure(data, layout, table, note)


def share_of(pair: Pair) -> float:
    """The draft model's share in the target's bytes."""
    return pair.required_draft.memory_bytes / pair.target.memory_bytes


def _row(pair: Pair, model: CostModel) -> list[str]:
    even = model.break_even
    return [
        pair.name,
        f"{pair.target.parameters / 1e9:.1f} billion",
        pair.required_draft.id,
        f"{pair.memory_bytes / 1e9:.1f}",
        f"{model.draft:.2f}",
        f"{model.verify:.2f}",
        str(model.length),
        "never" if even is None else f"{100 * even:.0f}",
        f"{model.speedup:.2f}",
    ]


OTHER_PAIRS = Plot(
    name="others",
    heading="Would it pay for another pair?",
    sentence="Speedup predicted for the registry's pairs, over their own autoregressive decoding. "
    "A bar that ends right of the dashed line would gain.",
    draw=_draw,
)
