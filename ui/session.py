"""What one browser tab is looking at: its latest run."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from pipeline.errors import UserError
from pipeline.run import Run
from pipeline.trace.record import Trace
from ui.component import encode
from ui.files import Files
from ui.header import Status
from ui.plots.plot import plots_json
from ui.run.recorded import badge, read_trace
from ui.run.stream import Stream
from ui.run.transcript import Transcript
from ui.run.turn import Turn
from ui.run.view_state import Board
from ui.tabs import draft_lengths
from ui.tabs.draft_lengths import Sweep
from ui.tabs.registry import RUN_TABS, run_values
from ui.verdict import summary, verdict

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.decoding.race import Mode
    from pipeline.dolly import Dolly
    from pipeline.request import Request

_SLOW_PERIOD = 1.0  # seconds between two drawings of the plots


@dataclass(frozen=True, slots=True)
class View:
    """What changed. `None` leaves as it is what is on the page."""

    lanes: str | None = None
    verdict: dict[str, str] | None = None
    details: dict[str, str] = field(default_factory=dict)  # by tab
    status: Status | None = None
    notice: str | None = None


def finished(trace: Trace, lanes: str) -> View:
    """All that is shown of a run that has ended; `lanes` are the lines of its transcript."""
    return View(lanes=lanes, verdict=verdict(trace), details=run_values(trace))


def replayed(trace: Trace, word: str) -> View:
    """A run that is not live, said to be `word`, where it was and when."""
    what = badge(word, trace)
    transcript = Transcript(uuid.uuid4().hex, trace, what)
    transcript.end(trace)
    return replace(finished(trace, transcript.text), verdict=verdict(trace, what))


class Session:
    """One tab's. Gradio copies an empty one for each.

    Attributes:
        board: what the page shows, but for the panes.
        log: what these show: the lines of a `Transcript`.
        files: of what was last run or opened, for the visitor to keep.
    """

    def __init__(self) -> None:
        self.board = Board()
        self.log = ""
        self.files: Files | None = None
        self._show: _Show | None = None
        self._sweep: Sweep | None = None  # the one under way
        self._tab = next(iter(RUN_TABS))

    def race(
        self, dolly: Dolly, request: Request, turn: Turn, mode: Mode = "race"
    ) -> Iterator[View]:
        """Runs the lanes of `mode`, and tells what changed as often as the page draws.

        Closing it cancels the run; `stopped` then tells what was left to say.

        Raises:
            UserError: the prompt does not fit.
        """
        show = _Show(dolly, request, turn, mode)
        with show.stream:
            self.close()
            self._show = show
            self.board = Board()  # the views know by now what the last run put there
            yield show.begin(self._tab)
            for _ in show.stream.beats():
                yield show.advance(self._tab)
        yield self._end(show)

    def sweep(self, dolly: Dolly, request: Request, turn: Turn) -> Iterator[View]:
        """Times every draft length on the request, and tells each time one more is known.

        Closing it cancels the answer under way; `stopped` then tells what was left to say.

        Raises:
            UserError: the prompt does not fit.
        """
        self._sweep = sweep = Sweep(dolly, request, turn)
        measuring = Status("running", "Measuring draft lengths", request.draft_length, dolly)
        told, drawn = -1, 0.0
        try:
            for _ in sweep:
                if self._sweep is not sweep:
                    return  # `stopped` has told how it stood
                new = sweep.answers != told and monotonic() - drawn >= _SLOW_PERIOD
                if new:
                    told, drawn = sweep.answers, monotonic()
                yield View(details=_lengths(sweep), status=measuring, notice="") if new else View()
        except Exception:
            self._sweep = None
            raise
        yield self._swept(sweep)

    def _swept(self, sweep: Sweep) -> View:
        self._sweep = None
        sweep.stop()
        failure = sweep.failure
        ended = "Draft lengths measured" if sweep.complete else "Stopped"
        return View(
            details=_lengths(sweep),
            status=Status("error", "Failed") if failure else Status("ready", ended),
            notice=run_failed(failure) if failure else "",
        )

    @property
    def works(self) -> bool:
        """Whether something of its own is under way."""
        return bool(self._sweep or (self._show and self._show.stream.works))

    def stopped(self) -> View:
        """Ends what is under way, if anything is, and tells how it stood."""
        if self._sweep:
            return self._swept(self._sweep)
        if self._show is None:
            return View()
        self._show.stream.stop()
        return self._end(self._show)

    def _end(self, show: _Show) -> View:
        with show.lock:
            view = show.end()
            if self._show is show and self.files is None:
                self.files = Files(show.trace())
        return view

    def open(self, file: Path) -> View:
        """A trace file of the visitor's, to be replayed.

        Raises:
            UserError: it is none, or a run is under way.
        """
        if self.works:
            raise UserError("trace file", file.name, "stop the run first")
        trace = read_trace(file)
        view = replayed(trace, f"Loaded · {file.name}")
        self.close()
        self.files = Files(trace)
        status = Status("opened", "Trace opened", trace.request["draft_length"])
        return replace(view, status=status, notice="")

    def look_at(self, tab: str) -> View:
        """What there is to see in that tab, which alone is kept up to date while a run goes on."""
        self._tab = tab
        return self._show.now(tab) if self._show else View()

    def close(self) -> None:
        """Forgets what was run or measured, and its files."""
        if self.files:
            self.files.close()
        self.files = self._show = self._sweep = None


class _Show:
    """A run and what has been told of it.

    The lock is for Stop: its handler may come while the race's own is still at work, and then both
    tell the end, because what the race's tells is lost.
    """

    def __init__(self, dolly: Dolly, request: Request, turn: Turn, mode: Mode) -> None:
        self._run: Run = dolly.start(request, mode)
        self._dolly, self._request = dolly, request
        self._transcript = Transcript(uuid.uuid4().hex, self._run.trace())
        self.lock = threading.RLock()
        self._last: View | None = None
        self._quarter = 0
        self._drawn = monotonic()
        self.stream = Stream(self._run, turn)

    def begin(self, tab: str) -> View:
        """Nothing yet, in place of what was there: a recorded run is not to be taken for this."""
        trace = self._run.trace()
        return View(
            lanes=self._transcript.tail,
            verdict=verdict(trace),
            details={tab: RUN_TABS[tab].value(trace, tables=False)},
            status=self._status("running", "Racing · 0 %"),
            notice="",
        )

    def advance(self, tab: str) -> View:
        with self.lock:
            updates = self.stream.take()
            if not updates or self._last:
                return View()
            trace = self._run.trace()
            self._transcript.add(trace, updates)
            slow = monotonic() - self._drawn >= _SLOW_PERIOD
            if slow:
                self._drawn = monotonic()
            return View(
                lanes=self._transcript.tail,
                verdict=verdict(trace) if slow else None,
                details={tab: RUN_TABS[tab].value(trace, tables=False)} if slow else {},
                status=self._progress(trace),
            )

    def now(self, tab: str) -> View:
        """A tab that was not kept up to date; at the end of a run all are."""
        with self.lock:
            if self._last:
                return View()
            return View(details={tab: RUN_TABS[tab].value(self._run.trace(), tables=False)})

    def end(self) -> View:
        """All of it, however often it is asked for."""
        with self.lock:
            if self._last:
                return self._last
            trace = self._run.trace()
            self._transcript.end(trace)
            failure = self.stream.failure
            outcome = ("error", "Failed") if failure else ("ready", summary(trace))
            self._last = replace(
                finished(trace, self._transcript.text),
                status=self._status(*outcome),
                notice=run_failed(failure) if failure else "",
            )
            return self._last

    def trace(self) -> Trace:
        return self._run.trace()

    def _progress(self, trace: Trace) -> Status | None:
        """Each quarter, once: the status is read aloud."""
        made = sum(len(lane.tokens) for lane in trace.lanes.values())
        quarter = 4 * made // (self._request.max_new_tokens * len(trace.lanes))
        if quarter <= self._quarter:
            return None
        self._quarter = quarter
        return self._status("running", f"Racing · {25 * quarter} %")

    def _status(self, state: str, line: str) -> Status:
        return Status(state, line, self._request.draft_length, self._dolly)


def _lengths(sweep: Sweep) -> dict[str, str]:
    tab = draft_lengths.TAB
    return {tab.name: encode({"plots": plots_json(tab.plots, sweep, tables=sweep.ended)})}


def run_failed(error: Exception) -> str:
    """One line for what no user caused."""
    reason = " ".join(str(error).split())[:200]
    return f"run: {type(error).__name__} {reason} — run it again; the log has the details."
