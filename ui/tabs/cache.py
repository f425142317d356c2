"""What the caches held, run by run; and what blocks save against trimming, where it was measured.

Lengths and bytes are the trace's. What was rolled back follows from them: a cache that held n
tokens, took in m and holds l was rolled back by n + m - l.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

from pipeline.trace.record import SPECULATIVE, Lane, StepRecord, Trace
from ui.plots.figure import Figure, Json, axes, bar_style, run_axis, shown_lane
from ui.plots.plot import Plot
from ui.plots.table import Table
from ui.tabs.tab import PLOT_SCRIPTS, RunTab

BLOCK = 32  # tokens of a block; `pipeline.runtime.kv_cache.paged`'s, which loads OpenVINO
_MEASURED = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "rounds.json"
_KINDS = {  # by the request's `kv_cache`
    "paged": "in blocks of 32 tokens, found through a table. Rolling back is a smaller number: "
    "nothing is copied, and a block that is empty goes back to the pool.",
    "stateful": "as the model’s own states, without blocks. Rolling back reads every state out, "
    "cuts it and sets it again.",
    "stateful-masked": "as the model’s own states, without blocks. What is rolled back stays where "
    "it is, masked, and takes room until the end.",
    "uncached": "not at all: every run reads the whole text again.",
}

_ROLLED = {"paged": "Blocks", "stateful": "Trimmed states", "stateful-masked": "Masked states"}


def picture(trace: Trace) -> Json:
    """What `blocks.js` draws: of each run, the tokens that each cache kept and rolled back."""
    kind = _kind(trace)
    name, lane = shown_lane(trace)
    return {
        "lane": name,
        "kept_as": f"This run kept its keys and values {_KINDS.get(kind, f'as “{kind}”.')}",
        "block": BLOCK if kind == "paged" else 0,
        "models": {
            model: [
                {"kept": length(step), "rolled": rolled, "bytes": size(step)}
                for step, rolled in zip(lane.steps, rolled_back(trace, lane, model), strict=True)
            ]
            for model, (length, size) in _kept(trace, lane).items()
        },
    }


@cache
def saved() -> Json | None:
    """What rolling back took in the committed benchmark, and where that was measured; None where
    there is none.
    """
    try:
        results = json.loads(_MEASURED.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    took = {
        (row["kv_cache"], row["context"]): row["call_ms"] + row["added_ms"]
        for row in results["rollback"]
    }
    contexts = sorted({context for _, context in took})
    machine = results["environment"]
    return {
        "columns": ["Tokens in the cache", *_ROLLED.values(), "Saved against trimming"],
        "rows": [
            [
                f"{context:,}",
                *(f"{took[kind, context]:.2f}" for kind in _ROLLED),
                f"{took['stateful', context] - took['paged', context]:.2f}",
            ]
            for context in contexts
        ],
        "where": f"Measured on {machine['cpu']} with {machine['cores']} cores, OpenVINO "
        f"{machine['openvino']}, {results['created'][:10]}: python -m benchmarks.rounds",
    }


_STYLES = {  # of a model: colour, pattern of its bars, dash of its line
    "target": ("--verify-time", "", "solid"),
    "draft": ("--draft-time", "/", "dash"),
}
_Measures = tuple[Callable[[StepRecord], int], Callable[[StepRecord], int]]
_MODELS: dict[str, _Measures] = {  # tokens and bytes
    "target": (lambda step: step.target_kv_len, lambda step: step.target_kv_bytes),
    "draft": (lambda step: step.draft_kv_len, lambda step: step.draft_kv_bytes),
}


def rolled_back(trace: Trace, lane: Lane, model: str) -> list[int]:
    """Tokens, of each run."""
    text = len(trace.prompt_tokens)  # tokens that stand, before a run
    rolled = []
    for step in lane.steps:
        drafted = len(step.drafted)
        if model == "target":  # read the newest token and every draft
            held = text + drafted
        elif _drafted_by_model(trace, step):  # read all but the last that it drafted
            held = text + drafted - 1
        else:
            held = step.draft_kv_len
        rolled.append(max(0, held - _MODELS[model][0](step)))
        text = step.target_kv_len + 1
    return rolled


def _kept(trace: Trace, lane: Lane) -> dict[str, _Measures]:
    """The models that had a cache. Look-up has read the text too, but keeps no keys and values."""
    copies = trace.request.get("drafter") == "lookup"
    return {
        model: measures
        for model, measures in _MODELS.items()
        if any(measures[0](step) for step in lane.steps) and not (copies and model == "draft")
    }


def _kind(trace: Trace) -> str:
    """Of the caches that the run had, which may be others than were asked for."""
    return str(trace.pair.get("kv_cache", trace.request.get("kv_cache")))


def _drafted_by_model(trace: Trace, step: StepRecord) -> bool:
    """And not copied from the text."""
    drafter = trace.request.get("drafter")
    copied = drafter == "lookup" or (drafter == "hybrid" and not step.draft_top)
    return bool(step.drafted) and not copied


def _caches(trace: Trace) -> Figure:
    """Bytes above, what was rolled back below."""
    name, lane = shown_lane(trace)
    runs = [step.index + 1 for step in lane.steps]
    blocks = _kind(trace) == "paged"
    data: list[Json] = []
    columns, series = ["Run"], [list(map(str, runs))]
    for model, (length, size) in _kept(trace, lane).items():
        tokens = [length(step) for step in lane.steps]
        used = [-(-count // BLOCK) for count in tokens]
        rolled = rolled_back(trace, lane, model)
        colour, pattern, dash = _STYLES[model]
        data += [
            {
                "type": "scatter",
                "x": runs,
                "y": [round(size(step) / 1e6, 4) for step in lane.steps],
                "name": model,
                "mode": "lines",
                "line": {"color": f"var({colour})", "width": 2, "dash": dash, "shape": "hv"},
                "customdata": [
                    f"{count} tokens" + (f" in {needed} blocks" if blocks else "")
                    for count, needed in zip(tokens, used, strict=True)
                ],
                "hovertemplate": f"run %{{x}}<br>%{{y:.2f}} MB, %{{customdata}}"
                f"<extra>{model}</extra>",
            },
            {
                "type": "bar",
                "x": runs,
                "y": rolled,
                "yaxis": "y2",
                "name": f"rolled back, {model}",
                "marker": bar_style(colour, pattern),
                "hovertemplate": f"run %{{x}}<br>%{{y}} rolled back<extra>{model}</extra>",
            },
        ]
        columns += [f"{model.capitalize()} {what}" for what in ("tokens", "blocks", "bytes")]
        columns.append(f"{model.capitalize()} rolled back")
        series += [
            list(map(str, tokens)),
            [str(count) if blocks else "" for count in used],
            [str(size(step)) for step in lane.steps],
            list(map(str, rolled)),
        ]
    layout = axes(
        trace.created,
        "target run",
        "megabytes in use",
        height=360,
        barmode="group",
        xaxis={"anchor": "y2"} | run_axis(lane),
        yaxis={"domain": [0.46, 1.0]},
        yaxis2={
            "domain": [0.0, 0.34],
            "anchor": "x",
            "title": {"text": "rolled back"},
            "gridcolor": "var(--line)",
            "zeroline": False,
            "rangemode": "tozero",
        },
    )
    note = "" if name == SPECULATIVE else "Nothing is rolled back in this lane."
    rows = [list(row) for row in zip(*series, strict=True)]
    return Figure(data, layout, lambda: Table(tuple(columns), rows), note)


def _details(trace: Trace) -> Json:
    return {"picture": picture(trace), "saved": saved()}


TAB = RunTab(
    name="cache",
    title="Cache",
    plots=(
        Plot(
            name="caches",
            heading="Bytes in use, and tokens rolled back",
            sentence="Keys and values that each model keeps, after every target run.",
            draw=_caches,
        ),
    ),
    template="cache/cache.html",
    scripts=(*PLOT_SCRIPTS, "cache/blocks"),
    details=_details,
)
