"""The experiments: each with its question, its last result, and a button that runs it here."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, cast

import gradio as gr

from pipeline.engine import local
from pipeline.models.choice import Choice
from pipeline.trace.record import Trace
from ui.component import asset, component, encode
from ui.laboratory import STUDIES, last_result, new_setup
from ui.plots.figure import Figure
from ui.plots.plot import Plot, plots_json
from ui.plots.rows import draw
from ui.run.action import Action, Asked, StagedDisplay, Work
from ui.tabs.tab import FIELDS_AND_PLOTS, Buttons, Tab

if TYPE_CHECKING:
    from lab.result import Mark, Result, Rows
    from lab.study import Study
    from pipeline.dolly import Dolly

_NOT_YET = {"sentence": "Not measured yet."}
_PERIOD = 1.0  # seconds between two drawings


@dataclass(frozen=True, slots=True)
class Shown:
    """What a view shows: a result of this machine, or the committed one; and a visitor's race."""

    rows: Rows
    created: str
    race: Mark | None = None


class ExperimentView:
    """The view of an experiment on the page.

    Attributes:
        name: of the view.
        title: of the experiment.
        plot: of its rows.
    """

    def __init__(self, experiment: Study) -> None:
        self.experiment = experiment
        self.name, self.title = f"experiment-{experiment.name}", experiment.title
        chart = experiment.chart
        heading = chart.axis or experiment.column(chart.y[0]).heading
        self.plot: Plot[Shown] = Plot(
            name=f"study_{experiment.name}",  # other plots have names like a study's
            heading=f"{heading[0].upper()}{heading[1:]}",
            sentence=chart.reading,
            draw=self._draw,
        )
        self._saved = last_result(experiment.name)

    def add(self) -> gr.HTML:
        """Adds it to the page being built."""
        return component(self.name, FIELDS_AND_PLOTS, self.value(None, "saved"), self.markup)

    @property
    def action(self) -> Action:
        """What measures it; its button is hidden, and pressed by the one in its markup."""
        name = f"measure-{self.experiment.name}"
        return Action(name=name, label=self.title, start=self._start, style="measure")

    def _start(self, asked: Asked) -> tuple[Work, StagedDisplay]:
        def load(choice: Choice) -> Dolly:
            return cast("Dolly", local(asked.load(choice), self.title))

        setup = new_setup(
            choice=asked.choice,
            request=asked.request,
            load=load,
            loaded=cast("Dolly", local(asked.engine, self.title)),
        )
        display = StagedDisplay(
            asked,
            f"Measuring: {self.title}",
            f"Measured: {self.title}",
            self._views,
            lambda result: result.complete,
            self._views(None, "running"),
            _PERIOD,
        )
        return self.experiment.measure(setup), display

    def _views(self, result: Result | None, state: str) -> dict[str, str]:
        return {self.name: self.value(result, state, tables=state != "running")}

    @property
    def markup(self) -> str:
        """Without values, which a script fills in."""
        experiment = self.experiment
        needs = f" It needs {experiment.needs}." if experiment.needs else ""
        return asset("experiments/experiment.html").format(
            name=experiment.name,
            where="page" if experiment.brief else "terminal",
            title=escape(self.title),
            question=escape(experiment.question),
            takes=escape(f"It takes about {experiment.takes}.{needs}"),
            command=escape(experiment.command),
            plot=self.plot.markup,
        )

    def value(
        self,
        result: Result | None,
        state: str,
        tables: bool = True,
        race: Mark | None = None,
    ) -> str:
        """The value of its view.

        Args:
            result: measured here so far; without rows, the committed one is shown.
            state: "saved", "running", "done", "stopped" or "failed".
            tables: left out during a run to save time.
            race: a visitor's, beside the committed result.
        """
        last, here = self._saved, result if result and result.rows else None
        fields = {"state": state, "progress": result.progress if result else ""}
        fields |= {"badge": "", "sentence": ""}
        if result and result.complete:
            fields |= {"badge": "Measured here", "sentence": self.experiment.conclude(result.rows)}
        elif not here:
            fields |= {"sentence": last.sentence, "badge": last.badge} if last else _NOT_YET
        measured = here or last
        rows, created = (measured.rows, measured.created) if measured else ((), "")
        shown = Shown(rows, created, None if here else race)
        plots = plots_json((self.plot,), shown, tables or not here)
        fields["plotted"] = "yes" if shown.rows else "no"
        return encode({"plots": plots, **fields})

    def _draw(self, shown: Shown) -> Figure:
        return draw(self.experiment, shown.rows, shown.created, shown.race)


VIEWS = [ExperimentView(experiment) for experiment in STUDIES.values()]


class Experiments(Tab):
    """The introduction, and below it the experiments: closed ones are an index of them."""

    def add(self, value: str = "") -> Buttons:
        self.add_view(value)
        with gr.Column(elem_id="experiment-list"):
            for view in VIEWS:
                view.add()
        return self.add_buttons()

    def run_values(self, trace: Trace) -> dict[str, str]:
        """A finished race, beside the committed results."""
        return {
            view.name: view.value(None, "saved", race=of_trace(trace))
            for view in VIEWS
            if (of_trace := view.experiment.chart.of_trace)
        }


TAB = Experiments(
    name="experiments",
    title="Experiments",
    template="experiments/introduction.html",
    scripts=(),
    actions=tuple(view.action for view in VIEWS if view.experiment.brief),
)
