"""A run as lines of JSON that are only ever appended to: what `lanes.js` draws, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.events import Drafted, Step
from ui.live import encode

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Update
    from pipeline.request import Request
    from pipeline.trace import Trace


class Transcript:
    """The lines of one run; `text` grows.

    Args:
        run: tells this run from the one before it.
        request: what was asked.
        piece: the text of a drafted token, of which events tell only the id.
        end_ids: tokens that end a text and have none.
    """

    def __init__(
        self, run: str, request: Request, piece: Callable[[int], str], end_ids: frozenset[int]
    ) -> None:
        self.text = ""
        self._piece = piece
        self._append(
            kind="start",
            run=run,
            budget=request.max_new_tokens,
            greedy=request.temperature == 0,
            end_ids=sorted(end_ids),
        )

    def add(self, updates: Sequence[Update], trace: Trace) -> None:
        """Appends what happened; `trace` is the record up to and with it."""
        for place, update in enumerate(updates):
            match update.event:
                case Step() as step:
                    self._append(kind="step", lane=update.lane, **self._step(step, update))
                case Drafted() as drafted if _undecided(update, updates[place + 1 :]):
                    self._append(
                        kind="drafted",
                        lane=update.lane,
                        index=drafted.step,
                        tokens=self._pieces(drafted.tokens),
                    )
        for name in dict.fromkeys(u.lane for u in updates if isinstance(u.event, Step)):
            lane = trace.lanes[name]
            rate = lane.tokens_per_second
            self._append(kind="pace", lane=name, made=len(lane.tokens), rate=f"{rate:.0f} tok/s")

    def end(self, trace: Trace) -> None:
        """Appends how each lane ended."""
        for name, lane in trace.lanes.items():
            self._append(kind="end", lane=name, reason=lane.finish)

    def _step(self, step: Step, update: Update) -> dict[str, Any]:
        return {
            "index": step.index,
            "tokens": [[token.id, token.text, token.origin] for token in update.tokens],
            "drafted": self._pieces(step.drafted),
            "accepted": step.accepted,
            "draft_prob": _short(step.draft_prob),
            "target_prob": _short(step.target_prob),
            "accept_prob": _short(step.accept_prob),
            "uniform": _short(step.uniform),
            "draft_ms": step.draft_s * 1000,
            "verify_ms": step.verify_s * 1000,
            "other_ms": step.other_s * 1000,
            "time_ms": update.time_s * 1000,
        }

    def _pieces(self, ids: Sequence[int]) -> list[tuple[int, str]]:
        return [(token, self._piece(token)) for token in ids]

    def _append(self, **line: object) -> None:
        self.text += encode(line) + "\n"


def _undecided(update: Update, later: Sequence[Update]) -> bool:
    """Its lane's next step is not known yet: drafts already decided are not worth drawing."""
    return all(after.lane != update.lane for after in later)


def _short(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else float(f"{value:.3g}") for value in values]
