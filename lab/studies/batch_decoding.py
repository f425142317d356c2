"""Greedy decoding of several texts at once, autoregressively and speculatively.

The same algorithms as in `pipeline.decoding.decoders`, for a batch: a forward pass extends every
text that goes on. Each text has its own drafts, its own verdict and its own rollback, and leaves
the batch when it ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.decoding.lm import Output
from pipeline.decoding.sampling import Distributions, SamplingParams
from pipeline.decoding.verification.tokens import Verify, verify

_GREEDY = SamplingParams()
Texts = list[list[int]]


class Batch(Protocol):
    """Several sequences of a model, each with a cache of its own.

    Attributes:
        token_ids: int64[vocab], the token of each logit; None if logit i is of token i.
    """

    token_ids: NDArray[np.int64] | None

    @property
    def lengths(self) -> list[int]:
        """Tokens in the cache of each sequence."""
        ...

    def forward(self, tokens: Sequence[Sequence[int]], pad_to: int = 0) -> list[Output]:
        """Appends tokens to each sequence, of which some may get none, in one forward pass.

        Args:
            tokens: by sequence.
            pad_to: tokens of all sequences to pad the pass to. Padding is not cached.

        Returns:
            For each sequence, its logits float32[n, vocab] after each of its n tokens.
        """
        ...

    def rollback(self, lengths: Sequence[int]) -> None:
        """Drops all but the first tokens of each sequence."""
        ...


@dataclass(frozen=True, slots=True)
class BatchRound:
    """One forward pass of the target, with the drafts before it.

    Attributes:
        tokens: that each text emitted; none if it had ended before.
        seconds: the round's whole cost.
        tested, accepted: drafted tokens of all texts.
    """

    tokens: tuple[tuple[int, ...], ...]
    seconds: float
    tested: int = 0
    accepted: int = 0


class Writing:
    """Texts that are being written.

    Args:
        prompts: at least one token each, all but the last in the models' caches.
        max_new_tokens: the budget of each.
        end_ids: tokens that end a text; they are emitted.

    Attributes:
        texts: so far, prompts included.
        left: tokens that each may still emit; 0 once it has ended.
    """

    def __init__(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, end_ids: frozenset[int]
    ) -> None:
        self.texts: Texts = [list(prompt) for prompt in prompts]
        self.left = [max_new_tokens] * len(self.texts)
        self._end_ids = end_ids

    @property
    def ongoing(self) -> list[int]:
        """The places of those that go on."""
        return [place for place, left in enumerate(self.left) if left]

    def unread(self, batch: Batch) -> Texts:
        """The tokens that a model has not read yet, of the texts that go on."""
        return [
            text[length:] if left else []
            for text, length, left in zip(self.texts, batch.lengths, self.left, strict=True)
        ]

    def emit(self, place: int, tokens: Sequence[int]) -> tuple[int, ...]:
        """Adds tokens to a text, up to and including the first end token; returns those."""
        ends = (count for count, token in enumerate(tokens, 1) if token in self._end_ids)
        count = next(ends, 0)
        emitted = tuple(tokens[: count or None])
        self.texts[place] += emitted
        self.left[place] = 0 if count else self.left[place] - len(emitted)
        return emitted


def autoregressive(target: Batch, writing: Writing) -> Iterator[BatchRound]:
    """One forward pass of the target for a token of each text."""
    while writing.ongoing:
        start = perf_counter()
        outputs = target.forward(writing.unread(target))
        tokens = tuple(
            writing.emit(place, (int(logits[-1].argmax()),)) if len(logits) else ()
            for place, (logits, _) in enumerate(outputs)
        )
        yield BatchRound(tokens, perf_counter() - start)


def speculative(
    target: Batch, draft: Batch, writing: Writing, draft_length: int, verify: Verify = verify
) -> Iterator[BatchRound]:
    """Drafts for all texts, then verifies all drafts in one forward pass of the target."""
    rng = np.random.default_rng(0)  # greedy decoding draws nothing
    while ongoing := writing.ongoing:
        start = perf_counter()
        # A round emits one token more than it drafts, and must not pass the budget.
        lengths = [max(0, min(draft_length, left - 1)) for left in writing.left]
        drafts = _drafted(draft, writing, lengths)

        # Every pass of as many texts has one size: another costs more the first time.
        pending = [
            [*new, *drafted] for new, drafted in zip(writing.unread(target), drafts, strict=True)
        ]
        outputs = target.forward(pending, pad_to=(draft_length + 1) * len(ongoing))

        tokens: list[tuple[int, ...]] = [()] * len(drafts)
        accepted = tested = 0
        for place in ongoing:
            drafted = drafts[place]
            probs = Distributions(outputs[place].logits[-len(drafted) - 1 :], _GREEDY)
            verdict = verify(probs, None, drafted, rng)
            kept = (*drafted[: verdict.accepted], verdict.token)
            tokens[place] = writing.emit(place, kept)
            accepted += verdict.accepted
            tested += min(verdict.accepted + 1, len(drafted))

        for cached in (target, draft):
            ends = zip(cached.lengths, writing.texts, strict=True)
            cached.rollback([min(length, len(text) - 1) for length, text in ends])
        yield BatchRound(tuple(tokens), perf_counter() - start, tested, accepted)


def _drafted(draft: Batch, writing: Writing, lengths: Sequence[int]) -> Texts:
    """The draft of each text, of so many tokens."""
    drafts: Texts = [[] for _ in lengths]
    wanted = zip(writing.unread(draft), lengths, strict=True)
    pending = [new if length else [] for new, length in wanted]
    while any(pending):
        outputs = draft.forward(pending, pad_to=2 * len(writing.ongoing))
        for drafted, (logits, _) in zip(drafts, outputs, strict=True):
            if len(logits):
                best = int(logits[-1].argmax())
                drafted.append(best if draft.token_ids is None else int(draft.token_ids[best]))
        pending = [
            drafted[-1:] if len(drafted) < length else []
            for drafted, length in zip(drafts, lengths, strict=True)
        ]
    return drafts
