"""The trace of a run while it grows, from the events of its lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.decoding.events import (
    Drafted,
    Event,
    Finish,
    FinishReason,
    Prefill,
    Round,
    Step,
    fields_of,
)
from pipeline.environment import PoolUse
from pipeline.text.stop import Detokenizer, StopFilter
from pipeline.trace.record import Lane, StepRecord, Token, Trace

Pools = Mapping[str, PoolUse | None]  # the blocks of the models' caches, by a step's field

NO_POOLS: Pools = {}


@dataclass(frozen=True, slots=True)
class Update:
    """An event of a lane, as it was recorded.

    Attributes:
        tokens: those that a step emitted, with their text.
        time_s: the lane's own clock.
        pools: the blocks of the caches after a step.
        rest: the text that was withheld until the end of the lane, since it could have been the
            beginning of a stop text.
    """

    lane: str
    event: Event
    tokens: tuple[Token, ...]
    time_s: float
    pools: Pools
    rest: str


class Recording:
    """The trace of a run, from the events of its lanes.

    Args:
        lanes: their names.
        detokenizer: returns a new one, which streams the text of a lane.
        piece: returns the text of a single token.
        stops: texts that end a lane's text.
        about: the fields of the trace that no lane changes; those of the models are known once the
            run is prepared.
    """

    def __init__(
        self,
        lanes: Iterable[str],
        detokenizer: Callable[[], Detokenizer],
        piece: Callable[[int], str],
        stops: Sequence[str],
        about: dict[str, Any],
    ) -> None:
        self._lanes = {name: LaneRecording(name, detokenizer(), piece, stops) for name in lanes}
        self.about = about

    def record(self, lane: str, event: Event, pools: Pools = NO_POOLS) -> Update:
        """Records the next event of a lane, with the caches' blocks after a step."""
        return self._lanes[lane].record(event, pools)

    def end(self, reason: FinishReason) -> None:
        """Ends the lanes that have no end."""
        for lane in self._lanes.values():
            if lane.finish is None:
                lane.record(Finish(reason))

    def trace(self) -> Trace:
        """The record as it stands; from any thread."""
        lanes = {name: lane.lane() for name, lane in self._lanes.items()}
        pieces = {token: text for lane in self._lanes.values() for token, text in lane.texts()}
        return Trace(**self.about, lanes=lanes, pieces=pieces)


class LaneRecording:
    """One lane of a recording, with the arguments of that. What may be the beginning of a stop text
    belongs to the token that shows that it is not, or to the last token.

    Attributes:
        finish: the reason why the lane ended; None while it runs.
    """

    def __init__(
        self,
        name: str,
        detokenizer: Detokenizer,
        piece: Callable[[int], str],
        stops: Sequence[str] = (),
    ) -> None:
        self.finish: FinishReason | None = None
        self._name, self._detokenizer, self._piece = name, detokenizer, piece
        self._filter, self._rest = StopFilter(stops), ""
        self._prefill_s = self._time_s = 0.0
        self._texts: dict[int, str] = {}  # of each single token that a step names
        # Appended together, since `lane` may be called from another thread.
        self._steps: list[tuple[StepRecord, tuple[Token, ...]]] = []

    def record(self, event: Event, pools: Pools = NO_POOLS) -> Update:
        """Records the next event, with the caches' blocks after a step."""
        emitted: tuple[Token, ...] = ()
        match event:
            case Prefill(seconds=seconds):
                self._prefill_s = self._time_s = seconds
            case Step():
                self._time_s += event.seconds
                self._name_tokens({*event.tokens, *event.named})
                emitted = tuple(self._emitted(event))
                fields = {**fields_of(Round, event), **pools}
                self._steps.append((StepRecord(**fields, time_s=self._time_s), emitted))
            case Finish(reason=reason):
                self.finish = reason
                if rest := self._filter.rest():
                    self._rest = rest
                    step, (*others, last) = self._steps[-1]
                    self._steps[-1] = step, (*others, replace(last, text=last.text + rest))
            case Drafted(tokens=tokens):
                self._name_tokens({*tokens})  # shown at once; the step that follows has all else
        return Update(self._name, event, emitted, self._time_s, pools, self._rest)

    def lane(self) -> Lane:
        """The lane so far; may be called from any thread."""
        recorded = tuple(self._steps)
        steps = tuple(step for step, _ in recorded)
        tokens = tuple(token for _, emitted in recorded for token in emitted)
        text = "".join(token.text for token in tokens)
        return Lane(self._prefill_s, self.finish, text, tokens, steps)

    def texts(self) -> list[tuple[int, str]]:
        """The text of each single token that a step names; may be called from any thread."""
        return [*self._texts.items()]

    def _name_tokens(self, tokens: set[int]) -> None:
        for token in tokens - self._texts.keys():
            self._texts[token] = self._piece(token)

    def _emitted(self, step: Step) -> Iterable[Token]:
        for token, origin in zip(step.tokens, step.origins, strict=True):
            text = self._filter.push(self._detokenizer.push(token))
            yield Token(token, text, origin, step.index, self._time_s)
