"""Fakes with real behaviour: a table-driven language model with a real rollback."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.decoding.events import Event, Origin, Step
from pipeline.decoding.lm import Hidden, Output
from pipeline.decoding.sampling import Probs, SamplingParams, probabilities
from pipeline.decoding.verification.tokens import Draft


class FakeLM:
    """Logits depend on the last two tokens only, through a table drawn from a seed.

    Args:
        sharpness: scales the logits; a small one makes the distributions nearly uniform.
        like: another FakeLM to resemble, by `likeness` in 0..1.
        proposes: cut the logits to this many tokens; it can still be fed the others.
        token_ids: keep only the logits of these tokens; it can still be fed the others.
    """

    def __init__(
        self,
        vocab_size: int,
        seed: int,
        sharpness: float = 1.5,
        like: FakeLM | None = None,
        likeness: float = 0.0,
        proposes: int | None = None,
        token_ids: Sequence[int] | None = None,
    ) -> None:
        self.token_ids = None if token_ids is None else np.array(token_ids)
        self.vocab_size = len(token_ids) if token_ids else proposes or vocab_size
        self.table = np.random.default_rng(seed).normal(size=(vocab_size,) * 3) * sharpness
        if like is not None:
            self.table = likeness * like.table + (1 - likeness) * self.table
        self.tokens: list[int] = []
        self.widths: list[int] = []  # tokens of each run
        self.most_held = 0
        self.hidden: Callable[[int], list[float]] | None = None  # of a token

    @property
    def kv_bytes(self) -> int:
        return 8 * len(self.tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    def forward(self, tokens: Sequence[int], logits_to_keep: int, pad_to: int = 0) -> Output:
        if tokens:
            self.widths.append(len(tokens))
        self.tokens += tokens
        self.most_held = max(self.most_held, len(self.tokens))
        ends = range(len(self.tokens) - logits_to_keep + 1, len(self.tokens) + 1)
        logits = [self.next_logits(self.tokens[:end]) for end in ends]
        hidden = self.hidden and np.array([self.hidden(token) for token in tokens], np.float32)
        return Output(
            np.array(logits, np.float32).reshape(logits_to_keep, self.vocab_size),
            hidden if self.hidden else None,
        )

    def rollback(self, length: int) -> None:
        if not 0 <= length <= len(self.tokens):
            raise ValueError(f"cannot roll {len(self.tokens)} tokens back to {length}")
        del self.tokens[length:]

    def next_logits(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        first, second = (0, *tokens)[-2:]
        row: NDArray[np.float64] = self.table[first, second]
        return row[: self.vocab_size] if self.token_ids is None else row[self.token_ids]


class FakeBlock:
    """A block draft of a FakeLM's table. Its first logits are that model's; later ones depend on
    the token before alone.

    Args:
        like: the model.
        length: tokens that it predicts at most.
    """

    def __init__(self, like: FakeLM, length: int = 8) -> None:
        self.vocab_size, self.token_ids, self.length = like.vocab_size, like.token_ids, length
        self.hidden: list[list[float]] = []  # that each token was given with
        self._lm = like

    @property
    def tokens(self) -> list[int]:
        return self._lm.tokens

    @property
    def kv_bytes(self) -> int:
        return self._lm.kv_bytes

    def __len__(self) -> int:
        return len(self._lm)

    def forward(self, tokens: Sequence[int], hidden: Hidden, length: int) -> NDArray[np.float32]:
        assert len(tokens) == len(hidden)
        self.hidden += hidden.tolist()
        logits = self._lm.forward(tokens, min(length, 1)).logits
        later = np.zeros((max(0, length - 1), self.vocab_size), np.float32)
        return np.concatenate([logits, later])

    def after(self, logits: NDArray[np.float32], previous: int) -> NDArray[np.float32]:
        row = self._lm.table[:, previous].mean(0).astype(np.float32)
        cut = row[: self.vocab_size] if self.token_ids is None else row[self.token_ids]
        return logits + cut

    def rollback(self, length: int) -> None:
        self._lm.rollback(length)
        del self.hidden[length:]


def verified(draft: Draft, accepted: int = 0, draft_s: float = 0.0, verify_s: float = 1.0) -> Step:
    """The round in which so much of a draft was accepted."""
    last = Origin.RESAMPLED if accepted < len(draft) else Origin.BONUS
    return Step(
        index=0,
        tokens=(*draft.tokens[:accepted], 0),
        origins=(*[Origin.ACCEPTED] * accepted, last),
        draft_s=draft_s,
        verify_s=verify_s,
        other_s=0.0,
        drafted=draft.tokens,
        accepted=accepted,
    )


def steps_of(events: Iterable[Event]) -> list[Step]:
    return [event for event in events if isinstance(event, Step)]


def tokens_of(events: Iterable[Event]) -> list[int]:
    """The tokens that were emitted."""
    return [token for step in steps_of(events) for token in step.tokens]


def next_probs(model: FakeLM, text: Sequence[int], params: SamplingParams) -> Probs:
    """The distribution of the token after a text."""
    return probabilities(np.array([model.next_logits(text)], np.float32), params)[0]


def continuations(
    model: FakeLM, text: Sequence[int], params: SamplingParams, count: int
) -> dict[tuple[int, ...], float]:
    """The probability of each continuation of a text by so many tokens."""
    if not count:
        return {(): 1.0}
    return {
        (token, *others): float(chance) * after
        for token, chance in enumerate(next_probs(model, text, params))
        for others, after in continuations(model, [*text, token], params, count - 1).items()
    }
