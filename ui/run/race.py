"""The view of a race on the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import monotonic

from pipeline.engine import Engine, Running
from pipeline.environment import MemoryUse
from pipeline.progress import Progress
from pipeline.trace.record import Trace
from pipeline.trace.recording import Update
from pipeline.trace.signatures import Signature, signatures
from ui import tour
from ui.errors import logged_line
from ui.header import Status
from ui.run.action import WAITING
from ui.run.recorded import badge
from ui.run.transcript import Transcript
from ui.run.view_state import Changes
from ui.tabs.registry import RUN_TABS, run_values
from ui.timeline import TIMELINE
from ui.verdict import summary, verdict

_FIRST_DRAWING = 0.25  # seconds from the start; a race of a small pair takes a second
_SLOW_PERIOD = 1.0  # seconds between two drawings of the verdict, the timeline and the plots


def replayed(trace: Trace, label: str, run: str = "recorded") -> Changes:
    """The view of a recorded run, with a badge of the label, the machine and the date.

    Args:
        run: its id among the runs of a page.
    """
    transcript = Transcript(run, trace, badge(label, trace))
    transcript.end(trace)
    return _whole(trace, transcript, verdict(trace, label), live=False)


class RaceDisplay:
    """The view of a race: tokens with every update; less often the verdict, the timeline and
    the plots of the selected tab.

    Args:
        name: its id among the runs of a page.
        earlier: the speedups of the same race, run before.
        waiting: it begins only after another run.
    """

    def __init__(
        self,
        name: str,
        run: Running,
        engine: Engine,
        earlier: Sequence[float] = (),
        waiting: bool = False,
    ) -> None:
        self._run, self._engine = run, engine
        self._earlier = earlier
        self._memory: dict[str, MemoryUse] = {}  # the most that was used of each limit
        self._found: tuple[Signature, ...] = ()
        self._transcript = Transcript(name, run.trace())
        self._waiting = waiting
        self._quarter = -1 if waiting else 0  # announced
        self._tab = ""
        self._drawn = monotonic()
        self._period = _FIRST_DRAWING

    def begin(self, tab: str) -> Changes:
        """An empty run, so that the run shown before is not taken for this one."""
        trace = self._run.trace()
        return Changes(
            lines=self._transcript.tail,
            verdict=verdict(trace),
            views=self._draw(trace, tab, TIMELINE.name),
            status=self._status("running", WAITING if self._waiting else "Racing · 0 %"),
            notice="",
        )

    def progress(self, reports: Sequence[Update | Progress], tab: str) -> Changes:
        if not reports and tab == self._tab:
            return Changes()
        if reports and isinstance(reports[-1], Progress):
            self._quarter = -1  # that it then begins is announced, too
            return Changes(status=self._status("running", f"{reports[-1]}…"))
        trace = self._run.trace()
        self._transcript.add(trace, [each for each in reports if isinstance(each, Update)])
        slow, selected = monotonic() - self._drawn >= self._period, tab != self._tab
        if slow:
            self._period = _SLOW_PERIOD
        drawn = [tab] * (slow or selected) + [TIMELINE.name] * slow
        return Changes(
            lines=self._transcript.tail,
            verdict=verdict(trace, found=self._signatures(trace)) if slow else None,
            views=self._draw(trace, *drawn) if drawn else {},
            status=self._progress(trace),
        )

    def end(self, latest: object, failure: BaseException | None) -> Changes:
        self._run.close()
        trace = self._run.trace()
        self._transcript.end(trace)
        said = verdict(trace, earlier=self._earlier, found=self._signatures(trace, failure))
        state = "ready" if said["state"] == "win" else "ended"
        outcome = ("error", "Failed") if failure else (state, summary(trace))
        return replace(
            _whole(trace, self._transcript, said, live=True),
            status=self._status(*outcome),
            notice=logged_line(failure) if failure else None,
        )

    def _signatures(
        self, trace: Trace, failure: BaseException | None = None
    ) -> tuple[Signature, ...]:
        """The signatures so far. Memory that was once near its limit stays so until the end."""
        for use in self._engine.memory_uses():
            most = self._memory.get(use.what)
            if most is None or use.share > most.share:
                self._memory[use.what] = use
        self._found = signatures(trace, self._memory.values(), failure, self._found)
        return self._found

    def _draw(self, trace: Trace, tab: str, *others: str) -> dict[str, str]:
        """The views of the selected tab and of others, as far as they are about a run."""
        self._tab, self._drawn = tab, monotonic()
        shown = (name for name in (tab, *others) if name in RUN_TABS)
        return {name: RUN_TABS[name].value(trace, tables=False) for name in shown}

    def _progress(self, trace: Trace) -> Status | None:
        """The status once per quarter, since screen readers announce it."""
        quarter = int(4 * trace.share_emitted)
        if quarter <= self._quarter:
            return None
        self._quarter = quarter
        return self._status("running", f"Racing · {25 * quarter} %")

    def _status(self, state: str, line: str) -> Status:
        return Status(state, line, self._engine)


def _whole(trace: Trace, transcript: Transcript, said: dict[str, str], live: bool) -> Changes:
    """The whole view of a run that has ended, with its verdict."""
    views = run_values(trace) | {tour.NAME: tour.value(trace, live)}
    return Changes(transcript.text, said, views)
