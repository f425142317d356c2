"""Which run belongs to which visitor, so that Stop stops their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import gradio as gr

from pipeline.dolly import Run


class Runs:
    """The runs under way, by the visitor's session."""

    def __init__(self) -> None:
        self._running: dict[str | None, Run] = {}

    @contextmanager
    def of(self, visitor: gr.Request, run: Run) -> Iterator[None]:
        """While the run goes on it can be stopped."""
        self._running[visitor.session_hash] = run
        try:
            yield
        finally:
            del self._running[visitor.session_hash]

    def stop(self, visitor: gr.Request) -> None:
        """Ends the visitor's run, if there is one; what was made stays."""
        if run := self._running.get(visitor.session_hash):
            run.cancel()
