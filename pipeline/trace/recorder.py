"""Records a decoder's events as a lane, with the text of its tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

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
from pipeline.trace.record import Lane, StepRecord, Token


class Detokenizer(Protocol):
    """Streams one sequence's text."""

    def push(self, token: int) -> str:
        """The whole characters that `token` completes; "" if none, or for the end key."""
        ...


def _no_pools() -> Mapping[str, PoolUse | None]:
    return {}


class LaneRecorder:
    """Turns one lane's events into its `Lane`.

    Args:
        detokenizer: streams the lane's text.
        piece: returns the text of a single token.
        pools: returns the blocks of the models' caches now, by the name of a step's field.

    Attributes:
        pieces: the text of each single token that a step names.
        pools: the blocks of the models' caches after the last step.
    """

    def __init__(
        self,
        detokenizer: Detokenizer,
        piece: Callable[[int], str],
        pools: Callable[[], Mapping[str, PoolUse | None]] = _no_pools,
    ) -> None:
        self._detokenizer, self._piece, self._pools_now = detokenizer, piece, pools
        self.pieces: dict[int, str] = {}
        self.pools: Mapping[str, PoolUse | None] = {}
        self._prefill_s = 0.0
        self._time_s = 0.0
        self._finish: FinishReason | None = None
        # Appended together, since `lane` may be called from another thread.
        self._steps: list[tuple[StepRecord, tuple[Token, ...]]] = []

    def record(self, event: Event) -> tuple[Token, ...]:
        """Records the next event; returns the tokens that it emitted."""
        match event:
            case Prefill(seconds=seconds):
                self._prefill_s = self._time_s = seconds
            case Step():
                self._time_s += event.seconds
                self._name({*event.tokens, *event.named})
                emitted = tuple(self._emitted(event))
                self.pools = self._pools_now()
                fields = {**fields_of(Round, event), **self.pools}
                step = StepRecord(**fields, time_s=self._time_s)
                self._steps.append((step, emitted))
                return emitted
            case Finish(reason=reason):
                self._finish = reason
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
            yield Token(token, self._detokenizer.push(token), origin, step.index, self._time_s)
