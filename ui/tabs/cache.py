"""The contents of the KV caches and of their pools after each step, and the cost of a rollback."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from typing import Any

from pipeline.decoding.events import SPECULATIVE
from pipeline.runtime.kv_cache.registry import DEFAULT_POLICY, POLICIES
from pipeline.trace.metrics import CacheUse, cache_use
from pipeline.trace.record import Trace
from pipeline.words import counted
from ui.laboratory import last_result
from ui.plots.figure import Figure, Json, axes, bar_style, shown_lane, step_axis
from ui.plots.plot import Plot
from ui.plots.table import Table
from ui.tabs.tab import FIELDS_AND_PLOTS, RunTab

_STYLES = {  # by model: colour, pattern of the bars, dash of the line
    "target": ("--verify-time", "", "solid"),
    "draft": ("--draft-time", "/", "dash"),
}


def picture(trace: Trace) -> Json:
    """The data of `cache.js`: the tokens that each cache keeps and rolls back, step by step."""
    kind = trace.kv_cache
    about = POLICIES[kind].about if kind in POLICIES else f"as “{kind}”."
    name, lane = shown_lane(trace)
    return {
        "lane": name,
        "kept_as": f"This run keeps its keys and values {about}",
        "block": trace.pair.get("kv_block") or 0,
        "limit": trace.pair.get("kv_memory") or 0,
        "models": {model: [*_steps(use)] for model, use in cache_use(trace, lane).items()},
    }


def _steps(use: CacheUse) -> Iterator[Json]:
    """One object a step; a value that the trace does not have is None."""
    so_far = use.rolled_back_so_far
    for at, (kept, megabytes) in enumerate(zip(use.tokens, use.megabytes, strict=True)):
        blocks = f"{counted(use.blocks[at], 'block')}, " if use.blocks else ""
        words = f"{counted(kept, 'token')}, {blocks}{megabytes:.2f} MB"
        rolled = use.rolled_back[at] if use.rolled_back else None
        if so_far:
            words += f"; rolled back: {rolled} by this step, {so_far[at]} since the prompt"
        pool = asdict(use.pools[at]) if use.pools else None
        yield {"kept": kept, "rolled": rolled, "words": words, "pool": pool}


@cache
def saved() -> Json | None:
    """The cost of a rollback in the committed result, and its machine; None without results."""
    results = last_result("rounds")
    if results is None:
        return None
    rows: dict[tuple[Any, Any], Any] = {(r["context"], r["kv_cache"]): r for r in results.rows}
    contexts, kinds = ([*dict.fromkeys(names)] for names in zip(*rows, strict=True))
    return {
        "columns": [
            "Tokens in the cache",
            *(f"{kind}, ms" for kind in kinds),
            f"{DEFAULT_POLICY} saves, ms",
        ],
        "rows": [
            [
                f"{context:,}",
                *(f"{rows[context, kind]['rollback_ms']:.2f}" for kind in kinds),
                f"{rows[context, DEFAULT_POLICY]['saved_ms']:.2f}",
            ]
            for context in contexts
        ],
        "where": f"Measured on {results.machine}: python -m lab rounds",
    }


def _caches(trace: Trace) -> Figure:
    """Bytes above, tokens rolled back below."""
    name, lane = shown_lane(trace)
    numbers = [step.index + 1 for step in lane.steps]
    data: list[Json] = []
    columns, series = ["Step"], [list(map(str, numbers))]
    known = True  # what was rolled back
    for model, use in cache_use(trace, lane).items():
        colour, pattern, dash = _STYLES[model]
        held = [counted(count, "token") for count in use.tokens]
        if use.blocks is not None:
            in_blocks = (counted(count, "block") for count in use.blocks)
            held = [f"{tokens} in {blocks}" for tokens, blocks in zip(held, in_blocks, strict=True)]
        data.append(
            {
                "type": "scatter",
                "x": numbers,
                "y": [round(size, 4) for size in use.megabytes],
                "name": model,
                "mode": "lines",
                "line": {"color": f"var({colour})", "width": 2, "dash": dash, "shape": "hv"},
                "customdata": held,
                "hovertemplate": f"step %{{x}}<br>%{{y:.2f}} MB, %{{customdata}}"
                f"<extra>{model}</extra>",
            }
        )
        if use.rolled_back is None:
            known = False
        else:
            data.append(
                {
                    "type": "bar",
                    "x": numbers,
                    "y": use.rolled_back,
                    "yaxis": "y2",
                    "name": f"rolled back, {model}",
                    "marker": bar_style(colour, pattern),
                    "hovertemplate": f"step %{{x}}<br>%{{y}} rolled back<extra>{model}</extra>",
                }
            )
        figures = {
            "tokens": use.tokens,
            "blocks": use.blocks,
            "bytes": use.bytes,
            "rolled back": use.rolled_back,
        }
        columns += [f"{model.capitalize()} {what}" for what in figures]
        series += [
            [""] * len(numbers) if counts is None else list(map(str, counts))
            for counts in figures.values()
        ]
    layout = axes(
        trace.created,
        "step",
        "megabytes",
        height=360,
        barmode="group",
        xaxis={"anchor": "y2"} | step_axis(lane),
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
    note = "" if name == SPECULATIVE else "Autoregressive decoding rolls nothing back."
    if not known:
        note = "This trace does not record what was rolled back."
    rows = [list(row) for row in zip(*series, strict=True)]
    return Figure(data, layout, lambda: Table(tuple(columns), rows), note)


def _details(trace: Trace) -> Json:
    return {**picture(trace), "saved": saved(), "machine": (saved() or {}).get("where", "")}


TAB = RunTab(
    name="cache",
    title="Cache",
    plots=(
        Plot(
            name="caches",
            heading="Memory in use, and tokens rolled back",
            sentence="The keys and values that each model keeps after every step.",
            draw=_caches,
        ),
    ),
    template="cache/cache.html",
    scripts=(*FIELDS_AND_PLOTS, "cache/cache"),
    details=_details,
)
