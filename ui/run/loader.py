"""The pair that the page serves: fetched, compiled and replaced in the background."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace

from pipeline.engine import Engine
from pipeline.errors import UserError
from pipeline.models.choice import Choice
from pipeline.models.pairs import DEFAULT_PAIR, PAIRS, Pair
from pipeline.progress import Progress
from pipeline.request import Request
from pipeline.task import Task
from ui.errors import reason
from ui.run.turn import Turn

Load = Callable[[Choice], Engine]

_PERIOD = 0.5  # seconds between two reports of progress
_LOADING = Progress("Loading the models")
_WAITING = Progress("Waiting for another run to end")


class Loader:
    """Loads a pair, starting when it is constructed, and prepares it for what the page begins with.

    Args:
        choice: the pair to load.
        load: compiles a pair whose models have been fetched.
        fixed: visitors may not replace the pair.

    Attributes:
        choice: that of the current pair, which may still be loading.
        load: as it was given.
        pairs: those that visitors can select: the registry's, and the first one.
    """

    def __init__(self, choice: Choice, load: Load, fixed: bool = False) -> None:
        self.choice, self.load, self.fixed = choice, load, fixed
        self._changing = threading.Lock()
        self.pairs = PAIRS | {choice.pair.name: choice.pair}
        self._compiling = Turn()  # of pairs alone, so that none disturbs the first one either
        # Its turn is its own: nobody can run models before there are some.
        self._loading = Task(self._obtain(choice, Turn()), name="load")
        self._loading.start()

    @property
    def pair(self) -> Pair:
        return self.choice.pair

    @property
    def offer(self) -> Pair:
        """The pair to suggest: the current one, or the embedded one if that failed."""
        return self.pairs[DEFAULT_PAIR] if self.failure else self.pair

    @property
    def progress(self) -> Progress:
        """Progress of the first pair."""
        return self._loading.latest or _LOADING

    @property
    def done(self) -> bool:
        """Whether the pair has been loaded, or has failed."""
        return not self._loading.running

    @property
    def failure(self) -> BaseException | None:
        """The `UserError` for which the pair was not loaded; None if there is none so far."""
        return self._loading.failure

    def engine(self) -> Engine:
        """Waits for the current pair and returns it.

        Raises:
            UserError: it could not be loaded.
        """
        return self._loading.result()

    def wait(self) -> Iterator[Progress]:
        """Yields progress until the first pair has been loaded or has failed."""
        for _ in self._loading.updates(_PERIOD):
            yield self.progress

    def change(self, pair: Pair, turn: Turn) -> Iterator[Progress]:
        """Fetches another pair, and loads it when its turn has come. The current one stays until
        then, and if that fails. Closing the iterator does not cancel it, since other visitors may
        wait for the pair too.

        Raises:
            UserError: the pair cannot be fetched or loaded, or another change is in progress.
        """
        if self.fixed:
            raise UserError("pair", pair.name, "this server keeps the one that it has")
        if not self._changing.acquire(blocking=False):
            raise UserError("pair", pair.name, "another pair is being loaded; wait for that")
        choice = replace(self.choice, pair=pair)

        def work() -> Generator[Progress | None, None, Engine]:
            try:
                loaded_bytes = 0 if self.failure else self.pair.memory_bytes
                engine = yield from self._obtain(choice, turn, loaded_bytes)
                before = self.engine() if self.done and not self.failure else None
                self.choice, self._loading = choice, task
                if before:
                    before.unload()  # what visitors see last still refers to it
                return engine
            finally:
                self._changing.release()

        task = Task(work(), name="load")
        task.start()
        for _ in task.updates(_PERIOD):
            yield task.latest or _LOADING
        task.result()

    def _obtain(
        self, choice: Choice, turn: Turn, loaded_bytes: int = 0
    ) -> Generator[Progress | None, None, Engine]:
        """Fetches a pair, and compiles it in its turn, while one of `loaded_bytes` stays in
        memory.
        """
        try:
            yield from choice.obtain(loaded_bytes)
            if turn.taken:
                yield _WAITING
            engine = yield from turn.run(self._compiling.run(self._compile(choice)))
            if engine is None:
                raise UserError("pair", choice.pair.name, "the server is shutting down")
            return engine
        except UserError:
            raise
        except Exception as error:
            logging.getLogger(__name__).exception("A pair could not be loaded")
            remedy = f"could not be loaded ({reason(error)}); load another pair, or read the log"
            raise UserError("pair", choice.pair.name, remedy) from None

    def _compile(self, choice: Choice) -> Generator[Progress, None, Engine]:
        """Compiles a pair, and prepares it for the settings that the page begins with, so that the
        first run need not wait for that.
        """
        yield _LOADING
        engine = self.load(choice)
        yield from engine.prepare(Request("any", **choice.pair.settings))
        return engine
