"""A study: a question, how it is answered, and what it is run on."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lab.result import Chart, Column, Result, Rows
from pipeline.errors import UserError
from pipeline.models.choice import Choice
from pipeline.models.pairs import Model, Pair
from pipeline.request import Request
from pipeline.runtime.kv_cache.policy import UnsupportedPolicyError
from pipeline.runtime.kv_cache.precision import KVPrecision

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly
    from pipeline.runtime.model import OVModel

_BRIEF = 60  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a study is run on.

    Attributes:
        choice: the pair, the store of models and the device.
        request: for studies of one request; the others have requests of their own.
        load: compiles a pair that the store has.
        loaded: the chosen pair, if it is loaded already.
        repeats: of each measurement; 0 for as many as the study usually makes.
        options: the values of the study's own arguments.
    """

    choice: Choice
    request: Request
    load: Callable[[Choice], Dolly]
    loaded: Dolly | None = None
    repeats: int = 0
    options: Namespace = field(default_factory=Namespace)

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

    def compiled(
        self, model: Model, kv_cache: str, precision: KVPrecision | None = None
    ) -> OVModel:
        """Compiles a model of the pair for a kind of KV cache.

        Raises:
            UserError: it has no such cache.
        """
        from pipeline.runtime.model import OVModel, RuntimeOptions

        options = RuntimeOptions(kv_cache, precision)
        try:
            return OVModel(self.choice.store.folder(model), options)
        except UnsupportedPolicyError as reason:
            remedy = f"has no {kv_cache} cache ({reason}); choose another pair"
            raise UserError("pair", self.choice.pair.name, remedy) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
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
        holds: whether what is claimed holds; the command fails if it does not.
        arguments: adds the arguments of its own to the command's.
        usage: arguments of its command that have to be filled in.
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
    holds: Callable[[Rows], bool] = lambda rows: True
    arguments: Callable[[ArgumentParser], None] = lambda parser: None
    usage: str = ""

    @property
    def command(self) -> str:
        return f"python -m lab {self.name} {self.usage}".rstrip()

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
