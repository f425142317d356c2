"""The state of one browser tab: its current run, its files and its views."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.decoding.memory import Memory
from pipeline.decoding.race import Mode
from pipeline.digits import Digits
from pipeline.engine import Engine, Running
from pipeline.errors import UserError
from pipeline.models.pairs import Pair
from pipeline.request import Request
from pipeline.trace.record import Trace
from ui.files import Files
from ui.header import Status
from ui.run.activity import Activity
from ui.run.costs import CostsDisplay
from ui.run.digits import DigitsDisplay
from ui.run.experiment import ExperimentDisplay
from ui.run.race import RaceDisplay, replayed, rested
from ui.run.recorded import read_trace
from ui.run.turn import Turn
from ui.run.view_state import Changes, ViewState
from ui.tabs.experiments import ExperimentView
from ui.tabs.registry import TABS

if TYPE_CHECKING:  # importing it loads OpenVINO
    from lab.study import Setup
    from pipeline.dolly import Dolly


class Session:
    """The state of one browser tab. Gradio copies an empty one for each.

    Attributes:
        view_state: the values of its views.
        tab: the name of the selected tab, the only one that is updated during a race.
    """

    def __init__(self) -> None:
        self.view_state = ViewState()
        self.tab = TABS[0].name
        self._activity: Activity | None = None
        self._run: Running | None = None
        self._files: Files | None = None
        self._pair: Pair | None = None
        self._memory = Memory()
        self._repeated: tuple[object, list[float]] = (None, [])  # a request, and its speedups

    def race(
        self, engine: Engine, request: Request, turn: Turn, mode: Mode = "race"
    ) -> Iterator[Changes]:
        """Runs the lanes of `mode`. Closing it cancels the run; `stop` returns its final view.

        Raises:
            UserError: the prompt does not fit.
        """
        run = engine.start(request, mode, self._memory_of(engine))
        self.close()
        self._run = run
        self.view_state = ViewState()  # the views have what it held by now
        speedups = self._speedups_of((request, mode, engine.pair))
        display = RaceDisplay(run, request, engine, speedups, turn.taken)
        race = Activity(turn.hold(rested(run)), display)
        try:
            yield from self._follow(race)
        finally:
            trace = run.trace()
            self._remember(trace)
            self._note(trace, speedups)

    def _note(self, trace: Trace, speedups: list[float]) -> None:
        """Adds the speedup of a whole race, unless it copied from an earlier one."""
        fast = trace.speculative
        if trace.finished and trace.speedup and fast and not fast.remembered:
            speedups.append(trace.speedup)

    def _speedups_of(self, repeated: object) -> list[float]:
        """Of the races before this one, one after the other, that asked for the very same."""
        if self._repeated[0] != repeated:
            self._repeated = (repeated, [])
        return self._repeated[1]

    def _memory_of(self, engine: Engine) -> Memory:
        """What this visitor was answered by these models. Nobody else's texts are in it: how fast a
        text is copied tells that it was there.
        """
        if self._pair != engine.pair:  # other token ids, or other answers
            self._pair, self._memory = engine.pair, Memory()
        return self._memory

    def _remember(self, trace: Trace) -> None:
        lane = trace.speculative or trace.autoregressive
        if lane and lane.tokens:
            self._memory.add([*trace.prompt_tokens, *(token.id for token in lane.tokens)])

    def measure(
        self, view: ExperimentView, setup: Setup, engine: Engine, turn: Turn
    ) -> Iterator[Changes]:
        """Runs the experiment of `view`. The last run stays on the page.

        Closing it cancels the experiment; `stop` returns its final view.
        """
        work = turn.hold(view.experiment.measure(setup))
        display = ExperimentDisplay(view, setup.request, engine, turn.taken)
        yield from self._follow(Activity(work, display))

    def draw_digits(
        self, digits: Digits, engine: Engine, request: Request, turn: Turn
    ) -> Iterator[Changes]:
        """Draws digits with both methods. The last run stays on the page.

        Closing it cancels the drawing; `stop` returns its final view.
        """
        work = turn.hold(digits.draw(request))
        yield from self._follow(Activity(work, DigitsDisplay(request, engine)))

    def measure_costs(self, dolly: Dolly, request: Request, turn: Turn) -> Iterator[Changes]:
        """Measures the costs of forward passes with a request's caches. The last run stays on the
        page.

        Closing it cancels the measurement; `stop` returns its final view.
        """
        work = turn.hold(dolly.measure(request))
        yield from self._follow(Activity(work, CostsDisplay(request, dolly, turn.taken)))

    def _follow(self, activity: Activity) -> Iterator[Changes]:
        self._activity = activity
        yield from activity.follow(lambda: self.tab)

    @property
    def busy(self) -> bool:
        """Whether an activity of this tab is running."""
        return self._activity is not None and self._activity.running

    def stop(self) -> Changes:
        """Ends the activity, if it has not ended; returns its final view."""
        return self._activity.stop() if self._activity else Changes()

    def open(self, file: Path) -> Changes:
        """Opens a visitor's trace file, which the page replays.

        Raises:
            UserError: it is not a trace, or an activity is running.
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
        """The files of the last run or opened trace, to download; None before the run has ended."""
        if self._files is None and self._run:
            trace = self._run.trace()
            if all(lane.finish for lane in trace.lanes.values()):
                self._files = Files(trace)
        return self._files

    def close(self) -> None:
        """Drops the last run and deletes its files."""
        if self._files:
            self._files.close()
        self._files = self._run = self._activity = None
