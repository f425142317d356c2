"""A trace as numbered lines of JSON: what `lanes.js` draws, in order.

A live run's grow with it; a recorded or loaded one's are there at once, and are the same lines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import Any

from pipeline.decoding.events import Candidates, Drafted
from pipeline.run import Update
from pipeline.trace.record import StepRecord, Token, Trace
from ui.component import encode

_TAIL = 5  # updates: a second's, of which a browser may miss all but the last


class Transcript:
    """The lines of one run.

    Args:
        run: tells this run from the one before it.
        trace: of which request, in which lanes.
        badge: of a run that is not live: what it is, where and when it was. It is to be replayed.
    """

    def __init__(self, run: str, trace: Trace, badge: str = "") -> None:
        self._lines: list[str] = []
        self._before = deque([0], _TAIL)  # lines that there were before each of the last updates
        self._told = dict.fromkeys(trace.lanes, 0)  # tokens of each lane
        self._named: set[int] = set()
        self._run = run
        self._append(
            kind="start",
            badge=badge,
            asked=trace.request["instruction"][:500],
            lanes=list(trace.lanes),
            budget=trace.request["max_new_tokens"],
            greedy=trace.greedy,
        )

    @property
    def text(self) -> str:
        """All lines."""
        return "".join(self._lines)

    @property
    def tail(self) -> str:
        """The lines of the last updates. Gradio copies a value several times on its way, and the
        models wait for that; a browser that has missed some waits for the `text`.
        """
        return "".join(self._lines[self._before[0] :])

    def add(self, trace: Trace, updates: Sequence[Update] = ()) -> None:
        """Appends the steps of `trace` not told yet, and the drafts of a round under way.

        Args:
            trace: the record so far.
            updates: what led to it since the last time.
        """
        self._before.append(len(self._lines))
        for name, lane in trace.lanes.items():
            untold = lane.tokens[self._told[name] :]
            for index, made in groupby(untold, attrgetter("step")):
                tokens = list(made)
                self._append(kind="step", lane=name, **self._step(lane.steps[index], tokens, trace))
                self._told[name] += len(tokens)
        for update in updates:
            match update.event:
                case Drafted(step=step, tokens=drafts) if step == self._next(trace, update.lane):
                    self._append(
                        kind="drafted",
                        lane=update.lane,
                        index=step,
                        drafted=drafts,
                        pieces=self._pieces(drafts, trace),
                    )

    def end(self, trace: Trace) -> None:
        """Appends what is left, and how each lane ended."""
        self.add(trace)
        for name, lane in trace.lanes.items():
            self._append(kind="end", lane=name, reason=lane.finish)

    def _next(self, trace: Trace, name: str) -> int:
        """The step that its lane has not told yet."""
        told = self._told[name]
        return trace.lanes[name].tokens[told - 1].step + 1 if told else 0

    def _step(self, step: StepRecord, tokens: Sequence[Token], trace: Trace) -> dict[str, Any]:
        named = chain(step.drafted, _ids(step.target_top), _ids(step.draft_top))
        return {
            "index": step.index,
            "tokens": [[token.id, token.text, token.origin] for token in tokens],
            "drafted": step.drafted,
            "accepted": step.accepted,
            "draft_prob": _short(step.draft_prob),
            "target_prob": _short(step.target_prob),
            "accept_prob": _short(step.accept_prob),
            "uniform": _short(step.uniform),
            "target_top": [_likeliest(top) for top in step.target_top],
            "draft_top": [_likeliest(top) for top in step.draft_top],
            "pieces": self._pieces(named, trace),
            "draft_ms": step.draft_s * 1000,
            "verify_ms": step.verify_s * 1000,
            "other_ms": step.other_s * 1000,
            "time_ms": step.time_s * 1000,
        }

    def _pieces(self, ids: Iterable[int], trace: Trace) -> list[tuple[int, str]]:
        """The texts of those ids that no line has told; an old trace may lack them."""
        new = set(ids) & trace.pieces.keys() - self._named
        self._named |= new
        return [(token, trace.pieces[token]) for token in sorted(new)]

    def _append(self, **line: object) -> None:
        self._lines.append(encode({"number": len(self._lines), "run": self._run, **line}) + "\n")


def _ids(tops: Iterable[Candidates]) -> Iterable[int]:
    return (token for top in tops for token, _ in top)


def _likeliest(top: Candidates) -> list[tuple[int, float | None]]:
    return list(zip((token for token, _ in top), _short([p for _, p in top]), strict=True))


def _short(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else float(f"{value:.3g}") for value in values]
