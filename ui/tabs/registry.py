"""The tabs below the answers: for whoever wants to know why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gradio as gr

from pipeline.trace.record import Trace
from ui.component import QUIET, encode, live
from ui.plots.figure import PLOTLY, plain
from ui.tabs.acceptance import acceptance
from ui.tabs.cache import caches, picture, saved
from ui.tabs.how import how, paper
from ui.tabs.steps import steps
from ui.tabs.timings import timings

_PLOTS = {"timings": timings, "steps": steps, "acceptance": acceptance, "cache": caches}
_DRAWN = ("plots/table", "plots/plots")  # the scripts of a tab with plots
_TITLES = {
    "timings": "Timings",
    "steps": "Steps",
    "acceptance": "Acceptance",
    "cache": "Cache",
    "how": "How it works",
}
TABS = tuple(_TITLES)  # of a run
SWEEP = "lengths"  # the tab of `ui.tabs.lengths`


def detail(tab: str, trace: Trace, tables: bool = True) -> str:
    """The value of a tab; all that it shows comes from the trace. Without `tables` it is quick
    enough for a run under way.
    """
    if tab == "how":
        return encode(how(trace) | {"paper": paper()})
    value: dict[str, Any] = {"plots": plain(_PLOTS[tab](trace), tables)}
    if tab == "cache":
        value |= {"picture": picture(trace), "saved": saved()}
    return encode(value)


def details(trace: Trace) -> dict[str, str]:
    """Every tab's value, of a trace that will not change."""
    return {tab: detail(tab, trace) for tab in TABS}


class Details:
    """Draws the tabs where it is made; `measure` is the button of `SWEEP`.

    Args:
        first: what they show at first, by the same names.
    """

    def __init__(self, first: Mapping[str, str]) -> None:
        scripts: dict[str, tuple[str, ...]] = {
            **dict.fromkeys(_PLOTS, _DRAWN),
            "cache": (*_DRAWN, "cache/blocks"),
            "how": ("plots/table", "how/how"),
        }
        self._tabs: dict[str, gr.Tab] = {}
        with gr.Tabs(elem_id="details", overflow_behavior="wrap"):
            for tab, title in _TITLES.items():
                with gr.Tab(title, id=tab) as self._tabs[tab]:
                    live(
                        tab,
                        scripts[tab],
                        first.get(tab, ""),
                        folder=None if tab in ("cache", "how") else "tabs",
                        plotly=str(PLOTLY),
                    )
            with gr.Tab("Draft lengths", id=SWEEP):
                self.measure = gr.Button("Measure every draft length", size="sm", elem_id="measure")
                live(SWEEP, _DRAWN, folder="tabs", plotly=str(PLOTLY))
            with gr.Tab("Trace & API", id="api"):
                live("api", "api/api")

    def on_select(self, look_at: Callable[..., Any], session: gr.State, board: gr.HTML) -> None:
        """`look_at(session, tab)` tells what `board` is to hold, when a tab is chosen."""
        for tab, chosen in self._tabs.items():
            chosen.select(
                lambda session, tab=tab: look_at(session, tab),
                inputs=[session],
                outputs=[board],
                queue=False,
                **QUIET,
            )
