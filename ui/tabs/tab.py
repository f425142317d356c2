"""The kinds of tabs: a text, a view of a run, an experiment."""

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
        title: the label of the tab.
        plots: from top to bottom.
        template: a file of `assets/` with markup around the plots; "" for plots alone.
        scripts: files of `assets/`, without `.js`.
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
    """A tab about a run. Everything in it comes from the trace.

    Attributes:
        details: returns the values, besides the plots, that the tab's own script shows.
    """

    details: Callable[[Trace], Json] = _nothing_more

    def value(self, trace: Trace, tables: bool = True) -> str:
        """The value of its view. During a run, `tables` are left out to save time."""
        return encode({"plots": plots_json(self.plots, trace, tables), **self.details(trace)})


class Outcome(Protocol):
    """The result of an experiment so far."""

    @property
    def complete(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentTab(Tab):
    """A tab with an experiment of `experiments/`, which a visitor starts.

    Attributes:
        button: the label of the button that starts it.
        running: the status while it runs.
        done: the status after its end.
        measure: runs it on the form's request; yields its outcome so far after every event of a
            run. The plots show the outcome.
    """

    button: str
    running: str
    done: str
    measure: Callable[[Dolly, Request], Generator[Any, None, None]]

    def value(self, outcome: Any, tables: bool = True) -> str:
        """The value of its view. During a run, `tables` are left out to save time."""
        return encode({"plots": plots_json(self.plots, outcome, tables)})
