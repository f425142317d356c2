"""The pair that the page is of: got, compiled, and changed for another, in the background."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import TYPE_CHECKING

from pipeline.errors import UserError
from pipeline.models.choice import Choice
from pipeline.models.pairs import DEFAULT_PAIR, PAIRS, Pair
from pipeline.progress import Progress

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly

Load = Callable[[Choice], "Dolly"]

_PERIOD = 0.5  # seconds between two looks at how far it has come


class Loader:
    """Starts to load at once. Whoever waits is told how far it has come.

    Args:
        choice: what to load.
        load: makes a pair of what is there.
        fixed: visitors may not change it.

    Attributes:
        pairs: those that a visitor can name: the registry's, and the first as it was chosen.
    """

    def __init__(self, choice: Choice, load: Load, fixed: bool = False) -> None:
        self._load, self.fixed = load, fixed
        self._changing = threading.Lock()
        self._loading: Future[Dolly] = Future()
        self._choice = choice
        self.pairs = PAIRS | {choice.pair.name: choice.pair}
        self.progress = Progress("Loading the models")
        threading.Thread(
            target=self._work, args=(choice, self._loading), name="load", daemon=True
        ).start()

    @property
    def choice(self) -> Choice:
        return self._choice

    @property
    def pair(self) -> Pair:
        return self._choice.pair

    @property
    def offer(self) -> Pair:
        """The pair to suggest: the one at work; the embedded one if that could not be loaded."""
        return self.pairs[DEFAULT_PAIR] if self.failure else self.pair

    @property
    def done(self) -> bool:
        """Whether there is something to race with, or to say why not."""
        return self._loading.done()

    @property
    def failure(self) -> BaseException | None:
        """Why there is nothing to race with, a `UserError`; None while it loads."""
        return self._loading.exception() if self.done else None

    def dolly(self) -> Dolly:
        """The pair at work; waits for it.

        Raises:
            UserError: it could not be loaded.
        """
        return self._loading.result()

    def wait(self) -> Iterator[Progress]:
        """Waits in pieces, so that whoever waits can be stopped."""
        while not self.done:
            yield self.progress
            wait([self._loading], _PERIOD)

    def change(self, pair: Pair) -> Iterator[Progress]:
        """Gets and loads another pair; the one at work stays until that is done, and if it fails.
        Closing it goes on: other visitors may wait for it too.

        Raises:
            UserError: it cannot be had or loaded, or another change is under way.
        """
        if self.fixed:
            raise UserError("pair", pair.name, "this server keeps the one that it has")
        if not self._changing.acquire(blocking=False):
            raise UserError("pair", pair.name, "another pair is being loaded; wait for that")
        choice = replace(self._choice, pair=pair)
        coming: Future[Dolly] = Future()

        def work() -> None:
            try:
                self._work(choice, coming, 0 if self.failure else self.pair.memory_bytes)
                if not coming.exception():
                    self._choice, self._loading = choice, coming
            finally:
                self._changing.release()

        threading.Thread(target=work, name="load", daemon=True).start()
        while not coming.done():
            yield self.progress
            wait([coming], _PERIOD)
        if error := coming.exception():
            raise error

    def _work(self, choice: Choice, future: Future[Dolly], beside: int = 0) -> None:
        try:
            for self.progress in choice.obtain(beside):
                pass
            self.progress = Progress("Loading the models")
            future.set_result(self._load(choice))
        except UserError as error:
            future.set_exception(error)
        except BaseException as error:
            logging.getLogger(__name__).exception("A pair could not be loaded")
            future.set_exception(_could_not_load(choice.pair, error))


def _could_not_load(pair: Pair, error: BaseException) -> UserError:
    reason = " ".join(f"{type(error).__name__} {error}".split())[:200]
    remedy = f"could not be loaded ({reason}); load another pair, or read the log"
    return UserError("pair", pair.name, remedy)
