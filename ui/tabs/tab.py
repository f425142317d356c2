"""What a tab is: a text, what there is to see of a run, or an experiment."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import gradio as gr

from pipeline.request import Request
from pipeline.trace.record import Trace
from ui.component import asset, component, encode
from ui.plots.figure import PLOTLY, Json
from ui.plots.plot import Plot, plots_json

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly

PLOT_SCRIPTS = ("plots/table", "plots/plots")
_PLOTS_HERE = "<!-- plots -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """
    Attributes:
        name: the element's id, and the name of its view.
        title: what is on the tab.
        plots: from top to bottom.
        template: of `assets/`: more markup, with a place for the plots; "" for plots alone.
        scripts: of `assets/`, without `.js`.
    """

    name: str
    title: str
    plots: tuple[Plot[Any], ...] = ()
    template: str = ""
    scripts: tuple[str, ...] = PLOT_SCRIPTS

    @property
    def markup(self) -> str:
        """Without values, which a script fills in."""
        plots = "".join(plot.markup for plot in self.plots)
        return asset(self.template).replace(_PLOTS_HERE, plots) if self.template else plots

    def add(self, value: str = "") -> gr.HTML:
        """Adds it to the page being built."""
        return component(self.name, self.scripts, value, self.markup, plotly=str(PLOTLY))


def _nothing_more(_: Trace) -> Json:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTab(Tab):
    """What there is to see of a run. All of it comes from the trace.

    Attributes:
        details: what it shows besides its plots, for its own script.
    """

    details: Callable[[Trace], Json] = _nothing_more

    def value(self, trace: Trace, tables: bool = True) -> str:
        """Of its view. Without `tables` it is fast enough for a run under way."""
        return encode({"plots": plots_json(self.plots, trace, tables), **self.details(trace)})


class Outcome(Protocol):
    """What an experiment has found so far."""

    @property
    def complete(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentTab(Tab):
    """An experiment of `experiments/`, which a visitor starts.

    Attributes:
        button: what is on the button that starts it.
        running: the status while it runs.
        done: the status after its end.
        measure: runs it on what the form asks; yields its outcome so far, after every event of a
            run, of which the plots are drawn.
    """

    button: str
    running: str
    done: str
    measure: Callable[[Dolly, Request], Generator[Any, None, None]]

    def value(self, outcome: Any, tables: bool = True) -> str:
        """Of its view. Without `tables` it is fast enough while it runs."""
        return encode({"plots": plots_json(self.plots, outcome, tables)})
