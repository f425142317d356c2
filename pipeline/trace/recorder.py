"""Records a decoder's events as a lane, with the text of its tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

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
from pipeline.trace.record import Lane, StepRecord, Token

Pools = Mapping[str, PoolUse | None]  # the blocks of the models' caches, by a step's field

NO_POOLS: Pools = {}


class LaneRecorder:
    """Turns one lane's events into its `Lane`.

    Args:
        detokenizer: streams the lane's text.
        piece: returns the text of a single token.
        stops: texts that end the lane's text. What may be the beginning of one belongs to the token
            that shows that it is not, or to the last token.

    Attributes:
        rest: the text that was withheld until the end.
        pieces: the text of each single token that a step names.
    """

    def __init__(
        self, detokenizer: Detokenizer, piece: Callable[[int], str], stops: Sequence[str] = ()
    ) -> None:
        self.rest = ""
        self._text = StopFilter(stops)
        self._detokenizer, self._piece = detokenizer, piece
        self.pieces: dict[int, str] = {}
        self._prefill_s = 0.0
        self._time_s = 0.0
        self._finish: FinishReason | None = None
        # Appended together, since `lane` may be called from another thread.
        self._steps: list[tuple[StepRecord, tuple[Token, ...]]] = []

    def record(self, event: Event, pools: Pools = NO_POOLS) -> tuple[Token, ...]:
        """Records the next event, with the caches' blocks after a step; returns the tokens that it
        emitted.
        """
        match event:
            case Prefill(seconds=seconds):
                self._prefill_s = self._time_s = seconds
            case Step():
                self._time_s += event.seconds
                self._name({*event.tokens, *event.named})
                emitted = tuple(self._emitted(event))
                fields = {**fields_of(Round, event), **pools}
                step = StepRecord(**fields, time_s=self._time_s)
                self._steps.append((step, emitted))
                return emitted
            case Finish(reason=reason):
                self._finish = reason
                if rest := self._text.rest():
                    self.rest = rest
                    step, (*others, last) = self._steps[-1]
                    self._steps[-1] = step, (*others, replace(last, text=last.text + rest))
            case Drafted(tokens=tokens):
                self._name({*tokens})  # shown at once; the step that follows has all else
        return ()

    @property
    def time_s(self) -> float:
        """The lane's own clock."""
        return self._time_s

    @property
    def finished(self) -> bool:
        return self._finish is not None

    def lane(self) -> Lane:
        """The lane so far; may be called from any thread."""
        recorded = tuple(self._steps)
        steps = tuple(step for step, _ in recorded)
        tokens = tuple(token for _, emitted in recorded for token in emitted)
        text = "".join(token.text for token in tokens)
        return Lane(self._prefill_s, self._finish, text, tokens, steps)

    def _name(self, tokens: set[int]) -> None:
        for token in tokens - self.pieces.keys():
            self.pieces[token] = self._piece(token)

    def _emitted(self, step: Step) -> Iterable[Token]:
        for token, origin in zip(step.tokens, step.origins, strict=True):
            text = self._text.push(self._detokenizer.push(token))
            yield Token(token, text, origin, step.index, self._time_s)
