"""An experiment: a question, how it is answered, and what it is run on."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lab.result import Chart, Column, Result, Rows
from pipeline.models.choice import Choice
from pipeline.models.pairs import Pair
from pipeline.request import Request

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly

_BRIEF = 60  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What an experiment is run on.

    Attributes:
        choice: the pair, the store of models and the device.
        request: for experiments on one request; the others have requests of their own.
        load: compiles a pair that the store has.
        loaded: the chosen pair, if it is loaded already.
        repeats: of each measurement; 0 for as many as the experiment usually makes.
        also: further pairs, for experiments that compare pairs.
    """

    choice: Choice
    request: Request
    load: Callable[[Choice], Dolly]
    loaded: Dolly | None = None
    repeats: int = 0
    also: tuple[Pair, ...] = ()

    def pair(self) -> Generator[Result, None, Dolly]:
        """Returns the chosen pair; yields what it does until then.

        Raises:
            UserError: it cannot be obtained or loaded.
        """
        return self.loaded or (yield from self.other(self.choice.pair))

    def other(self, pair: Pair) -> Generator[Result, None, Dolly]:
        """Obtains and loads another pair, beside the one that may be loaded.

        Raises:
            UserError: as of `pair`.
        """
        choice, result = replace(self.choice, pair=pair), Result()
        for progress in choice.obtain(self.choice.pair.memory_bytes if self.loaded else 0):
            yield replace(result, doing=str(progress))
        yield replace(result, doing="compiling the models")
        return self.load(choice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """
    Attributes:
        name: on the command line, and of the file of its result.
        title: its heading.
        question: one sentence.
        needs: what it needs beside the pair, in words; "" if nothing.
        seconds: that it takes with the embedded pair on two cores, about.
        columns: of its table.
        chart: of its rows.
        measure: yields its result so far after every event, at the latest every few seconds.
            Closing the generator ends it. It raises UserError for what a user can mend.
        conclude: returns one sentence on what came out, from all rows.
        arguments: of its command that have to be filled in.
    """

    name: str
    title: str
    question: str
    seconds: int
    columns: tuple[Column, ...]
    chart: Chart
    measure: Callable[[Setup], Generator[Result, None, None]]
    conclude: Callable[[Rows], str]
    needs: str = ""
    arguments: str = ""

    @property
    def command(self) -> str:
        return f"python -m lab {self.name} {self.arguments}".rstrip()

    @property
    def brief(self) -> bool:
        """Whether it is short enough to be run on the page."""
        return self.seconds <= _BRIEF

    @property
    def takes(self) -> str:
        """The time that it takes, in words."""
        return f"{self.seconds} s" if self.brief else f"{round(self.seconds / 60)} min"

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)
