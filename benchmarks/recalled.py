"""Models that compute what follows each text once, and recall it from then on.

For drawing many texts that begin alike: the same decoders run on the same logits, and most of their
forward passes take no time. The models run with their own caches, which are rolled back to what the
texts have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pipeline.decoding.lanes import Lanes
from pipeline.decoding.lm import BlockDraft, CausalLM, Hidden, Output
from pipeline.decoding.sampling import Logits

_Text = tuple[int, ...]


def recalled(lanes: Lanes, context: Sequence[int]) -> Lanes:
    """The lanes of prompts that are `context`, with models that compute each text once.

    Args:
        lanes: of the models themselves.
        context: at least two tokens.
    """
    target, draft = (LMResults(new(()), context[:-1]) for new in (lanes.target, lanes.draft))
    block = None
    if lanes.block and target.hidden is not None:
        results = BlockResults(lanes.block(), context[:-1], target.hidden)
        block = partial(RecalledBlock, results)
    return replace(
        lanes,
        target=lambda prompt: RecalledLM(target),
        draft=lambda prompt: RecalledLM(draft),
        block=block,
    )


class LMResults:
    """What a model computes after each text that begins with a context.

    Args:
        model: a new sequence of it.
        context: tokens.

    Attributes:
        hidden: of the context's tokens.
    """

    def __init__(self, model: CausalLM, context: Sequence[int]) -> None:
        self.model, self.context = model, [*context]
        self.hidden = model.forward(self.context, logits_to_keep=0).hidden
        self._cached: _Text = ()  # in the model's cache, after the context
        self._known: dict[_Text, tuple[Logits, Hidden | None]] = {}

    def after(self, text: _Text, count: int) -> list[tuple[Logits, Hidden | None]]:
        """Logits and hidden states after each of the last `count` tokens of a text.

        Args:
            text: what follows the context.
        """
        asked = [text[:end] for end in range(len(text) - count + 1, len(text) + 1)]
        first = next((at for at, part in enumerate(asked) if part not in self._known), None)
        if first is not None:
            self._compute(text, len(asked[first]) - 1)
        return [self._known[part] for part in asked]

    def _compute(self, text: _Text, start: int) -> None:
        """Computes the rows of the tokens from `start` on. Those before it that are not cached are
        read apart: all passes are of few tokens, so that their logits are those of one token.
        """
        kept = min(start, _common(self._cached, text))
        self.model.rollback(len(self.context) + kept)
        self.model.forward(text[kept:start], logits_to_keep=0)
        logits, hidden = self.model.forward(text[start:], logits_to_keep=len(text) - start)
        self._cached = text
        for at, row in enumerate(logits):
            states = None if hidden is None else hidden[at : at + 1]
            self._known[text[: start + at + 1]] = row, states


class RecalledLM:
    """A sequence of a model (`CausalLM`) that begins with the context, for one generation."""

    def __init__(self, results: LMResults) -> None:
        self.vocab_size, self.token_ids = results.model.vocab_size, results.model.token_ids
        self._results = results
        self._text = [*results.context]
        self._unread = results.hidden  # hidden states that the first pass returns too

    @property
    def kv_bytes(self) -> int:
        return self._results.model.kv_bytes

    def __len__(self) -> int:
        return len(self._text)

    def forward(self, tokens: Sequence[int], logits_to_keep: int, pad_to: int = 0) -> Output:
        self._text += tokens
        begin = len(self._results.context)
        rows = self._results.after(tuple(self._text[begin:]), len(tokens)) if tokens else []
        states = [hidden for _, hidden in rows if hidden is not None]
        if self._unread is not None:
            states, self._unread = [self._unread, *states], None
        logits = [row for row, _ in rows[len(rows) - logits_to_keep :]]
        return Output(
            np.stack(logits) if logits else np.empty((0, self.vocab_size), np.float32),
            np.concatenate(states) if len(states) > 1 else next(iter(states), None),
        )

    def rollback(self, length: int) -> None:
        if length > len(self._text):
            raise ValueError(f"cannot roll {len(self._text)} tokens back to {length}")
        del self._text[length:]


class BlockResults:
    """What a block draft computes after each text that begins with a context.

    Args:
        model: a new sequence of it.
        context: tokens.
        hidden: the target's, of these tokens.
    """

    def __init__(self, model: BlockDraft, context: Sequence[int], hidden: Hidden) -> None:
        self.model, self.context = model, [*context[1:]]  # it has no row for the first token
        if self.context:
            model.forward(self.context, hidden[: len(self.context)], 0)
        self._cached: _Text = ()
        self._known: dict[tuple[_Text, int], NDArray[np.float32]] = {}

    def after(self, text: _Text, hidden: Sequence[Hidden], length: int) -> NDArray[np.float32]:
        """The logits of the next `length` tokens.

        Args:
            text: what follows the context, at least one token.
            hidden: float32[1, width], that each of its tokens was predicted from.
        """
        if (text, length) not in self._known:
            kept = min(len(text) - 1, _common(self._cached, text))
            self.model.rollback(len(self.context) + kept)
            states = np.concatenate(hidden[kept:])
            self._known[text, length] = self.model.forward(text[kept:], states, length)
            self._cached = text
        return self._known[text, length]


class RecalledBlock:
    """A sequence of a block draft (`BlockDraft`), for one generation after the context."""

    def __init__(self, results: BlockResults) -> None:
        model = results.model
        self.vocab_size, self.token_ids, self.length = (
            model.vocab_size,
            model.token_ids,
            model.length,
        )
        self._results = results
        self._text: list[int] = []
        self._hidden: list[Hidden] = []  # of the tokens after the context

    @property
    def kv_bytes(self) -> int:
        return self._results.model.kv_bytes

    def __len__(self) -> int:
        return len(self._text)

    def forward(self, tokens: Sequence[int], hidden: Hidden, length: int) -> NDArray[np.float32]:
        self._text += tokens
        begin = len(self._results.context)
        text = tuple(self._text[begin:])
        if text:
            new = hidden[len(hidden) - (len(text) - len(self._hidden)) :]
            self._hidden += [new[at : at + 1] for at in range(len(new))]
        if not length:
            return np.empty((0, self.vocab_size), np.float32)
        return self._results.after(text, self._hidden, length)

    def after(self, logits: NDArray[np.float32], previous: int) -> NDArray[np.float32]:
        return self._results.model.after(logits, previous)

    def rollback(self, length: int) -> None:
        if length > len(self._text):
            raise ValueError(f"cannot roll {len(self._text)} tokens back to {length}")
        del self._text[length:]
        del self._hidden[max(0, length - len(self._results.context)) :]


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens with which both begin."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
