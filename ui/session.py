"""The state of one browser tab: its current run, its files and its views."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.race import Mode
from pipeline.engine import Engine, Running
from pipeline.errors import UserError
from pipeline.models.pairs import Pair
from pipeline.request import Request
from pipeline.trace.record import Trace
from ui.files import OF_RUN, Files
from ui.header import Status
from ui.run.action import Action, Asked
from ui.run.activity import Activity
from ui.run.race import RaceDisplay, replayed
from ui.run.recorded import read_trace
from ui.run.turn import Turn
from ui.run.view_state import Changes, ViewState
from ui.tabs.registry import TABS

_REST = 0.2  # seconds in which a browser draws the empty run: its prefill would take twice as long


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
        self._id = ""  # of the last run, on the page; nobody guesses it
        self._files: Files | None = None
        self._pair: Pair | None = None
        self._memory = AnswerMemory()
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
        self._run, self._id = run, uuid.uuid4().hex
        self.view_state = ViewState()  # the views have what it held by now
        speedups = self._speedups_of((request, mode, engine.pair))
        display = RaceDisplay(self._id, run, engine, speedups, turn.taken)
        self._activity = Activity(turn.run(iter(run)), display, _REST)
        try:
            yield from self._activity.follow(lambda: self.tab)
        finally:
            trace = run.trace()
            self._remember(trace)
            fast = trace.speculative
            if trace.finished and trace.speedup and fast and not fast.remembered:
                speedups.append(trace.speedup)  # of a race that copied nothing from an earlier one

    def _speedups_of(self, repeated: object) -> list[float]:
        """Of the races before this one, one after the other, that asked for the very same."""
        if self._repeated[0] != repeated:
            self._repeated = (repeated, [])
        return self._repeated[1]

    def _memory_of(self, engine: Engine) -> AnswerMemory:
        """What this visitor was answered by these models. Nobody else's texts are in it: how fast a
        text is copied tells that it was there.
        """
        if self._pair != engine.pair:  # other token ids, or other answers
            self._pair, self._memory = engine.pair, AnswerMemory()
        return self._memory

    def _remember(self, trace: Trace) -> None:
        lane = trace.speculative or trace.autoregressive
        if lane and lane.tokens:
            self._memory.add([*trace.prompt_tokens, *(token.id for token in lane.tokens)])

    def act(self, action: Action, asked: Asked, turn: Turn) -> Iterator[Changes]:
        """Does the work of an action. The last run stays on the page.

        Closing it cancels the work; `stop` returns its final view.

        Raises:
            UserError: the work cannot be done here.
        """
        work, display = action.start(asked)
        self._activity = Activity(turn.run(work), display)
        yield from self._activity.follow(lambda: self.tab)

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
        name = uuid.uuid4().hex
        changes = replayed(trace, f"Loaded · {file.name}", name)
        self.close()
        self._files = Files(trace, name)
        status = Status("opened", "Trace opened")
        return replace(changes, status=status, notice="")

    def files(self, kept: str = "") -> Files | None:
        """The files of the last run or opened trace, to download; None before the run has ended.
        Without one, as after a reload, those of the run whose id the browser has kept.
        """
        if self._files is None and self._run:
            trace = self._run.trace()
            if all(lane.finish for lane in trace.lanes.values()):
                self._files = Files(trace, self._id)
        return self._files or (None if self._run else OF_RUN.get(kept))

    def close(self) -> None:
        """Drops the last run and deletes its files."""
        if self._files:
            self._files.close()
        self._files = self._run = self._activity = None
