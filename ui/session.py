"""One browser tab: what its visitor runs, opens and looks at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import UserError
from pipeline.request import Request
from pipeline.run import Run
from ui.files import Files
from ui.header import Status
from ui.run.activity import Activity
from ui.run.experiment import ExperimentDisplay
from ui.run.race import RaceDisplay, replayed
from ui.run.recorded import read_trace
from ui.run.turn import Turn
from ui.run.view_state import Changes, ViewState
from ui.tabs.registry import TABS
from ui.tabs.tab import ExperimentTab

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.decoding.race import Mode
    from pipeline.dolly import Dolly


class Session:
    """What belongs to one browser tab. Gradio copies an empty one for each.

    Attributes:
        view_state: what its page shows.
        tab: the one that its visitor looks at, which alone is kept up to date during a race.
    """

    def __init__(self) -> None:
        self.view_state = ViewState()
        self.tab = TABS[0].name
        self._activity: Activity | None = None
        self._run: Run | None = None
        self._files: Files | None = None

    def race(
        self, dolly: Dolly, request: Request, turn: Turn, mode: Mode = "race"
    ) -> Iterator[Changes]:
        """Runs the lanes of `mode`. Closing it cancels the run; `stop` returns how that ended.

        Raises:
            UserError: the prompt does not fit.
        """
        run = dolly.start(request, mode)
        self.close()
        self._run = run
        self.view_state = ViewState()  # the views have what it held by now
        yield from self._follow(Activity(turn.hold(iter(run)), RaceDisplay(run, request, dolly)))

    def measure(
        self, tab: ExperimentTab, dolly: Dolly, request: Request, turn: Turn
    ) -> Iterator[Changes]:
        """Runs the experiment of `tab` on the request. The run shown stays.

        Closing it ends the experiment; `stop` returns how far that came.
        """
        work = turn.hold(tab.measure(dolly, request))
        yield from self._follow(Activity(work, ExperimentDisplay(tab, request, dolly)))

    def _follow(self, activity: Activity) -> Iterator[Changes]:
        self._activity = activity
        yield from activity.follow(lambda: self.tab)

    @property
    def busy(self) -> bool:
        """Whether an activity of its own goes on."""
        return self._activity is not None and self._activity.running

    def stop(self) -> Changes:
        """Ends the activity; returns what it came to, also if it has ended before."""
        return self._activity.stop() if self._activity else Changes()

    def open(self, file: Path) -> Changes:
        """A trace file of the visitor's, to be replayed.

        Raises:
            UserError: it is not one, or an activity goes on.
        """
        if self.busy:
            raise UserError("trace file", file.name, "stop the run first")
        trace = read_trace(file)
        changes = replayed(trace, f"Loaded · {file.name}")
        self.close()
        self._files = Files(trace)
        status = Status("opened", "Trace opened", trace.request["draft_length"])
        return replace(changes, status=status, notice="")

    def files(self) -> Files | None:
        """Of what was last run or opened, for the visitor to keep; None while it runs."""
        if self._files is None and self._run and not self.busy:
            self._files = Files(self._run.trace())
        return self._files

    def close(self) -> None:
        """Forgets what was run, and removes its files."""
        if self._files:
            self._files.close()
        self._files = self._run = self._activity = None
