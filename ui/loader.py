"""Loads a pair in the background, so that the page opens while the models compile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from pipeline.dolly import Dolly
from pipeline.errors import UserError


class Loader:
    """Args: `load` makes the pair; it runs once, on a thread of its own, from now on."""

    def __init__(self, load: Callable[[], Dolly]) -> None:
        executor = ThreadPoolExecutor(1, thread_name_prefix="load")
        self._future: Future[Dolly] = executor.submit(load)
        executor.shutdown(wait=False)

    def dolly(self) -> Dolly:
        """The pair, waiting for it if need be.

        Raises:
            UserError: it could not be loaded.
        """
        return self._future.result()

    def status(self) -> str:
        """One line on where things stand; never waits."""
        if not self._future.done():
            return "Loading the models…"
        error = self._future.exception()
        if error is not None:
            return f"Not loaded. {error if isinstance(error, UserError) else type(error).__name__}"
        dolly = self._future.result()
        target = dolly.describe()["target"]
        return f"Ready · {dolly.pair.title} · CPU · {target['weights']} · cache {target['kv_precision']}"
