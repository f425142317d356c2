"""The pair that the page serves: fetched, compiled, and changed for another, in the background."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pipeline.errors import UserError
from pipeline.models.choice import Choice
from pipeline.models.pairs import DEFAULT_PAIR, PAIRS, Pair
from pipeline.progress import Progress
from ui.run.task import Task

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly

Load = Callable[[Choice], "Dolly"]

_PERIOD = 0.5  # seconds between two reports to whoever waits
_LOADING = Progress("Loading the models")
_LONGEST = 200  # characters of an error


class Loader:
    """Starts to load at once.

    Args:
        choice: what to load.
        load: makes a pair of models that are there.
        fixed: visitors may not change it.

    Attributes:
        choice: that of the pair which is served, or will be when it is loaded.
        pairs: those that a visitor can name: the registry's, and the first as it was chosen.
    """

    def __init__(self, choice: Choice, load: Load, fixed: bool = False) -> None:
        self.choice, self.fixed = choice, fixed
        self._load = load
        self._changing = threading.Lock()
        self.pairs = PAIRS | {choice.pair.name: choice.pair}
        self._loading = Task(self._obtain(choice), name="load")
        self._loading.start()

    @property
    def pair(self) -> Pair:
        return self.choice.pair

    @property
    def offer(self) -> Pair:
        """The pair to suggest: the one that is served; the embedded one if there is none."""
        return self.pairs[DEFAULT_PAIR] if self.failure else self.pair

    @property
    def progress(self) -> Progress:
        """How far the first pair has come."""
        return self._loading.latest or _LOADING

    @property
    def done(self) -> bool:
        """Whether there is a pair to race with, or a reason why there is none."""
        return not self._loading.running

    @property
    def failure(self) -> BaseException | None:
        """Why there is no pair, a `UserError`; None while it loads."""
        return self._loading.failure

    def dolly(self) -> Dolly:
        """The pair that is served; waits for it.

        Raises:
            UserError: it could not be loaded.
        """
        return self._loading.result()

    def wait(self) -> Iterator[Progress]:
        """Reports progress until the first pair is there or has failed."""
        for _ in self._loading.updates(_PERIOD):
            yield self.progress

    def change(self, pair: Pair) -> Iterator[Progress]:
        """Fetches and loads another pair. The one that is served stays until that is done, and if
        it fails. Closing the iterator does not end it: other visitors may wait for the pair too.

        Raises:
            UserError: the pair cannot be had or loaded, or another change is under way.
        """
        if self.fixed:
            raise UserError("pair", pair.name, "this server keeps the one that it has")
        if not self._changing.acquire(blocking=False):
            raise UserError("pair", pair.name, "another pair is being loaded; wait for that")
        choice = replace(self.choice, pair=pair)

        def work() -> Generator[Progress, None, Dolly]:
            try:
                beside = 0 if self.failure else self.pair.memory_bytes
                dolly = yield from self._obtain(choice, beside)
                self.choice, self._loading = choice, task
                return dolly
            finally:
                self._changing.release()

        task = Task(work(), name="load")
        task.start()
        for _ in task.updates(_PERIOD):
            yield task.latest or _LOADING
        task.result()

    def _obtain(self, choice: Choice, beside: int = 0) -> Generator[Progress, None, Dolly]:
        """`beside` is the memory that the pair served by now takes, in bytes."""
        try:
            yield from choice.obtain(beside)
            yield _LOADING
            return self._load(choice)
        except UserError:
            raise
        except Exception as error:
            logging.getLogger(__name__).exception("A pair could not be loaded")
            reason = " ".join(f"{type(error).__name__} {error}".split())[:_LONGEST]
            remedy = f"could not be loaded ({reason}); load another pair, or read the log"
            raise UserError("pair", choice.pair.name, remedy) from None
