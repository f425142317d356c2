"""A trace as numbered lines of JSON, which `lanes.js` draws in order.

The lines of a live run are appended as it runs; those of a recorded run, the same, all at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from pipeline.decoding.events import Drafted
from pipeline.models.pairs import PAIRS
from pipeline.trace.explanation import (
    END_KEY,
    WAITING,
    drafting,
    explain,
    named,
    probabilities,
)
from pipeline.trace.metrics import progress
from pipeline.trace.record import Trace
from pipeline.trace.recording import Update
from pipeline.trace.repetition import body, repeats
from ui.component import encode

_TAIL = 5  # updates, about one second: a browser may receive only the last of them


class Transcript:
    """The lines of one run.

    Args:
        run: its id among the runs of a page.
        trace: has the request and the names of the lanes.
        badge: the label of a recorded run, which the page replays; "" for a live run.
    """

    def __init__(self, run: str, trace: Trace, badge: str = "") -> None:
        self._lines: list[str] = []
        self._before = deque([0], _TAIL)  # lines that there were before each of the last updates
        self._added = dict.fromkeys(trace.lanes, 0)  # steps of each lane
        self._named: set[int] = set()
        self._run = run
        self._append(
            kind="start",
            badge=badge,
            asked=trace.request["instruction"][:500],
            model=_model(trace),
            lanes=list(trace.lanes),
            budget=trace.request["max_new_tokens"],
            waiting=WAITING,
            probabilities=probabilities(trace),
        )

    @property
    def text(self) -> str:
        """All lines."""
        return "".join(self._lines)

    @property
    def tail(self) -> str:
        """The lines of the last updates. Shorter than `text`, since Gradio copies a value several
        times while the models wait; a browser that misses more gets them with `text` at the end.
        """
        return "".join(self._lines[self._before[0] :])

    def add(self, trace: Trace, updates: Sequence[Update] = ()) -> None:
        """Appends the new steps of `trace`, and the drafts of the current round.

        Args:
            trace: the record so far.
            updates: those since the last call.
        """
        self._before.append(len(self._lines))
        for name, lane in trace.lanes.items():
            _, *progressed = progress(lane)
            steps = [*zip(lane.steps, lane.emitted, progressed, strict=True)]
            for step, tokens, now in steps[self._added[name] :]:
                self._append(
                    kind="step",
                    lane=name,
                    **asdict(explain(trace, name, step, tokens)),
                    drafted=step.drafted,
                    target_top=_short(step.target_top),
                    draft_top=_short(step.draft_top),
                    time_s=step.time_s,
                    drafted_at_s=step.drafted_at_s,
                    made=now.tokens,
                    tokens_per_second=now.tokens_per_second,
                    pieces=self._pieces(step.named, trace),
                )
            self._added[name] = len(lane.steps)
        for update in updates:
            match update.event:
                case Drafted(index, drafts, copied) if index == self._added[update.lane]:
                    self._append(
                        kind="drafted",
                        lane=update.lane,
                        step=index,
                        drafting=drafting(trace, len(drafts), copied),
                        drafted=drafts,
                        pieces=self._pieces(drafts, trace),
                    )

    def end(self, trace: Trace) -> None:
        """Appends the remaining steps, and how each lane ended, at which rate."""
        self.add(trace)
        for name, lane in trace.lanes.items():
            self._append(
                kind="end",
                lane=name,
                reason=lane.finish,
                name=END_KEY,
                tokens_per_second=lane.tokens_per_second,
                repeats=repeats(body(lane), lane.text),
            )

    def _pieces(self, ids: Iterable[int], trace: Trace) -> list[tuple[int, str, str]]:
        """The texts and names of those ids that no earlier line has; an old trace may lack them."""
        new = set(ids) & trace.pieces.keys() - self._named
        self._named |= new
        return [(token, trace.pieces[token], named(trace, token)) for token in sorted(new)]

    def _append(self, **line: object) -> None:
        self._lines.append(encode({"number": len(self._lines), "run": self._run, **line}) + "\n")


def _model(trace: Trace) -> str:
    """Which model answers, how large it is, and what to expect of its facts."""
    name, parameters = str(trace.pair["name"]), trace.pair["target"].get("parameters")
    title = PAIRS[name].title if name in PAIRS else name
    size = f"{parameters / 1e6:,.0f} million parameters" if parameters else "of unknown size"
    return f"{title}, {size}: its facts can be wrong"


def _short(value: Any) -> Any:
    """Rounds probabilities to the three digits that are shown."""
    if isinstance(value, tuple):
        return [_short(each) for each in value]
    return float(f"{value:.3g}") if isinstance(value, float) else value
