"""The result of a study: a table of plain values, and how it is plotted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from pipeline.trace.record import Trace

Cell = str | float | bool | None  # None where there is no value
Row = Mapping[str, Any]  # cells, by column
Rows = Sequence[Row]


@dataclass(frozen=True, slots=True)
class Column:
    """
    Attributes:
        name: of its cells in a row.
        title: its heading.
        unit: of its numbers; "%" for shares from 0 to 1; "" for texts and counts.
        digits: after the decimal point.
    """

    name: str
    title: str
    unit: str = ""
    digits: int = 2

    @property
    def heading(self) -> str:
        return f"{self.title}, {self.unit}" if self.unit else self.title

    def value(self, cell: Cell) -> Cell:
        """The cell in the column's unit."""
        return 100 * cell if self.unit == "%" and isinstance(cell, int | float) else cell

    def text(self, cell: Cell) -> str:
        """The cell as it is shown; "" for None."""
        if isinstance(cell, bool):
            return "yes" if cell else "no"
        value = self.value(cell)
        if value is None:
            return ""
        return value if isinstance(value, str) else f"{value:.{self.digits}f}"


def even(rows: Rows) -> float | None:
    """The level where a method is as fast as what it is compared with."""
    return 1.0


@dataclass(frozen=True, slots=True)
class Mark:
    """A point on a plot beside its rows, in the units of their cells."""

    x: float
    y: float
    name: str


@dataclass(frozen=True, slots=True)
class Chart:
    """How the rows are plotted.

    Attributes:
        kind: of the marks.
        x: the name of a column.
        y: of one or several, each a series of its own.
        series: the column whose values are drawn apart from each other, if there is a single y.
        axis: the title of y's axis; "" for the heading of its column.
        whiskers: the columns with the ends of each mark's range.
        level: returns the height of a dashed line, in the unit of y; None for no line.
        logarithmic: the scale of y.
        marks: returns points of comparison.
        of_trace: returns the point of a visitor's race, None if it has none; itself None if races
            have no place on this plot.
        reading: a sentence on how to read the plot.
    """

    kind: Literal["bars", "lines"]
    x: str
    y: tuple[str, ...]
    series: str = ""
    axis: str = ""
    whiskers: tuple[str, str] | None = None
    level: Callable[[Rows], float | None] = lambda rows: None
    logarithmic: bool = False
    marks: Callable[[Rows], Sequence[Mark]] = lambda rows: ()
    of_trace: Callable[[Trace], Mark | None] | None = None
    reading: str = ""


def now() -> str:
    """The date and time, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True)
class Result:
    """What a study has measured so far.

    Attributes:
        rows: of the table, complete ones only.
        done, planned: measurements; `planned` is 0 while that is not known.
        doing: what it does before it measures, such as loading models.
        pair: what is measured, as in a trace.
        figures: beside the table, by name: plain data.
        created: when it began, ISO 8601.
    """

    rows: tuple[Row, ...] = ()
    done: int = 0
    planned: int = 0
    doing: str = ""
    pair: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    created: str = field(default_factory=now)

    def measured(self, *rows: Row) -> Result:
        """With one more measurement, and the rows that it completes."""
        return replace(self, rows=(*self.rows, *rows), done=self.done + 1)

    @property
    def complete(self) -> bool:
        return 0 < self.planned == self.done

    @property
    def progress(self) -> str:
        """How far it is, in a few words; "" once it is complete."""
        if self.complete:
            return ""
        return f"{self.done} of {self.planned} measured" if self.planned else self.doing
