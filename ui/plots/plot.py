"""A plot on the page: its name, its texts and its figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from html import escape
from typing import Generic, TypeVar

from ui.component import asset
from ui.plots.figure import Figure, Json, merged

Subject = TypeVar("Subject")


@dataclass(frozen=True, slots=True)
class Plot(Generic[Subject]):
    """
    Attributes:
        name: unique on the page; also that of the files saved from it.
        heading: above it; also the title of a saved picture.
        sentence: below the heading: what the plot shows, and how to read it.
        draw: returns its figure for a subject: a trace, or the result of an experiment.
    """

    name: str
    heading: str
    sentence: str
    draw: Callable[[Subject], Figure]

    @property
    def markup(self) -> str:
        """The element that `plots.js` draws into."""
        texts = {"heading": escape(self.heading), "sentence": escape(self.sentence)}
        return asset("plots/plot.html").format(name=self.name, **texts)


def plots_json(
    plots: Iterable[Plot[Subject]],
    subject: Subject,
    tables: bool = True,
    instead: Callable[[], Subject] | None = None,
) -> Json:
    """The figures of `subject`, as `plots.js` reads them. During a run, `tables` are left out to
    save time.

    Args:
        instead: returns what is shown, and said so, where a whole `subject` has nothing to plot.
    """
    shown: Json = {}
    for plot in plots:
        figure = plot.draw(subject)
        if instead and tables and figure.empty:
            other = plot.draw(instead())
            note = f"{figure.note} Shown instead: the recorded run. {other.note}".strip()
            figure = replace(other, note=note)
        hidden = {"visible": not figure.empty}
        layout = merged(figure.layout, {"xaxis": hidden, "yaxis": hidden})
        shown[plot.name] = {"data": figure.data, "layout": layout, "note": figure.note}
        if tables:
            table = figure.table()
            cells = {"columns": table.columns, "rows": table.rows}
            shown[plot.name] |= {"table": cells, "csv": table.csv()}
    return shown
