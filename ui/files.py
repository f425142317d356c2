"""The files of a run, to download."""

from __future__ import annotations

import tempfile
from pathlib import Path
from weakref import WeakValueDictionary

from pipeline.trace.record import Trace
from ui.tabs.steps import steps_table


class Files:
    """Temporary files with a trace as JSON and its steps as CSV. Gradio serves its own copies.

    Args:
        run: its id on the page, which finds them in `OF_RUN` as long as they are there.
    """

    def __init__(self, trace: Trace, run: str) -> None:
        OF_RUN[run] = self
        self._folder = tempfile.TemporaryDirectory(prefix="dolly-")
        when = trace.created[:19].replace(":", "")
        self.trace = self._write(f"dolly-trace-{when}.json", trace.to_json())
        # The byte-order mark makes spreadsheets read it as UTF-8.
        self.steps = self._write(f"dolly-steps-{when}.csv", "\ufeff" + steps_table(trace).csv())

    @property
    def paths(self) -> tuple[Path, Path]:
        return self.trace, self.steps

    def close(self) -> None:
        self._folder.cleanup()

    def _write(self, name: str, text: str) -> Path:
        path = Path(self._folder.name) / name
        path.write_text(text, encoding="utf-8", newline="")
        return path


OF_RUN: WeakValueDictionary[str, Files] = WeakValueDictionary()
