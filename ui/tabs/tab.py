"""The kinds of tabs: a text, a view of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gradio as gr

from pipeline.engine import Engine
from pipeline.trace.record import Trace
from ui.component import asset, component, encode, fields
from ui.plots.figure import Json
from ui.plots.plot import Plot, plots_json
from ui.run.action import Action
from ui.run.recorded import recorded

PLOT_SCRIPTS = ("plots/plots",)
FIELDS_AND_PLOTS = ("view/fields", *PLOT_SCRIPTS)
Buttons = dict[Action, gr.Button]
_PLOTS_HERE = "<!-- plots -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """
    Attributes:
        name: the element's id, and the name of its view.
        title: the label of the tab.
        plots: from top to bottom.
        actions: what visitors can start from it.
        template: a file of `assets/` with markup around the plots; "" for plots alone.
        scripts: modules of `assets/`, without `.js`.
        line: the name of the view of a line below, for what its actions find out; "" for none.
        about_pair: returns the line's value for the loaded pair, None while there is none.
    """

    name: str
    title: str
    plots: tuple[Plot[Any], ...] = ()
    actions: tuple[Action, ...] = ()
    template: str = ""
    scripts: tuple[str, ...] = PLOT_SCRIPTS
    line: str = ""
    about_pair: Callable[[Engine | None], str] | None = None

    @property
    def markup(self) -> str:
        """Without values, which a script fills in."""
        plots = "".join(plot.markup for plot in self.plots)
        return asset(self.template).replace(_PLOTS_HERE, plots) if self.template else plots

    def add(self, value: str = "") -> Buttons:
        """Adds it to the page being built; returns the buttons of its actions, which are above,
        or below its line.
        """
        if self.line:
            self.add_view(value)
            component(self.line, "view/fields", fields(), asset("view/line.html"))
            return self.add_buttons()
        buttons = self.add_buttons()
        self.add_view(value)
        return buttons

    def add_view(self, value: str) -> None:
        component(self.name, self.scripts, value, self.markup)

    def add_buttons(self) -> Buttons:
        with gr.Row(elem_classes="actions", visible=bool(self.actions)):
            return {action: action.add_button() for action in self.actions}

    def run_values(self, trace: Trace) -> dict[str, str]:
        """The values of its views about a finished run, by name."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTab(Tab):
    """A tab about a run. Everything in it comes from the trace.

    Attributes:
        details: returns the values, besides the plots, that the tab's scripts show.
    """

    details: Callable[[Trace], Json] = lambda _: {}

    def run_values(self, trace: Trace) -> dict[str, str]:
        return {self.name: self.value(trace)}

    def value(self, trace: Trace, tables: bool = True) -> str:
        """The value of its view. During a run, `tables` are left out to save time."""
        plots = plots_json(self.plots, trace, tables, recorded)
        return encode({"plots": plots, **self.details(trace)})
