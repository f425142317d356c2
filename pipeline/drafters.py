"""Who proposes the tokens that the target verifies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.sampling import SamplingParams, draw, probabilities
from pipeline.speculation import Draft

DrafterKind = Literal["model", "lookup"]


class CausalLM(Protocol):
    """One sequence of one model."""

    vocab_size: int

    @property
    def kv_bytes(self) -> int:
        """Bytes that its cache holds."""
        ...

    def __len__(self) -> int:
        """Tokens in its cache."""
        ...

    def forward(self, tokens: Sequence[int], rows: int) -> NDArray[np.float32]:
        """Appends `tokens`; returns the logits float32[rows, vocab] after the last `rows`."""
        ...

    def rollback(self, length: int) -> None:
        """Forgets all past `length`; raises ValueError if that is more than is cached."""
        ...


class Drafter(Protocol):
    """Proposes; never decides."""

    @property
    def kv_bytes(self) -> int: ...

    def __len__(self) -> int: ...

    def prefill(self, tokens: Sequence[int]) -> None:
        """Takes in a prompt, so that the first proposal is as quick as the others."""
        ...

    def propose(
        self, tokens: Sequence[int], k: int, params: SamplingParams, rng: np.random.Generator
    ) -> Draft:
        """At most `k` tokens to follow `tokens`, none after an end token."""
        ...

    def rollback(self, length: int) -> None: ...


class ModelDrafter:
    """A small model of the target's vocabulary, run token by token.

    Args:
        model: the draft model, with a cache of its own.
        vocab_size: the target's. Draft distributions are shaped over the common part and padded
            with zeros: a token that the draft does not know is one that it never proposes.
        end_ids: tokens after which there is nothing to draft.
    """

    def __init__(self, model: CausalLM, vocab_size: int, end_ids: frozenset[int]) -> None:
        self._model, self._vocab_size, self._end_ids = model, vocab_size, end_ids

    @property
    def kv_bytes(self) -> int:
        return self._model.kv_bytes

    def __len__(self) -> int:
        return len(self._model)

    def prefill(self, tokens: Sequence[int]) -> None:
        self._model.forward(tokens, rows=0)

    def propose(
        self, tokens: Sequence[int], k: int, params: SamplingParams, rng: np.random.Generator
    ) -> Draft:
        drafted: list[int] = []
        probs = np.zeros((k, self._vocab_size), np.float32)
        pending = tokens[len(self._model) :]
        for row in probs:
            common = self._model.forward(pending, rows=1)[:, : self._vocab_size]
            row[: common.shape[1]] = probabilities(common, params)[0]
            drafted.append(draw(row, rng))
            if drafted[-1] in self._end_ids:
                break
            pending = drafted[-1:]
        return Draft(tuple(drafted), probs[: len(drafted)])

    def rollback(self, length: int) -> None:
        self._model.rollback(length)


class PromptLookupDrafter:
    """Copies what followed the text's last words when they stood there before; no model at all.

    Prompt lookup (Saxena 2023): of the earlier places where the longest ending of the text stands,
    the latest is taken. No such place, no draft. The tokens are certain, so `Draft.probs` is None.

    Args:
        end_ids: tokens after which there is nothing to draft.
        longest, shortest: tokens of an ending that is looked for.
    """

    kv_bytes = 0

    def __init__(self, end_ids: frozenset[int], longest: int = 4, shortest: int = 2) -> None:
        self._end_ids = end_ids
        self._sizes = range(longest, shortest - 1, -1)
        self._text: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}  # where each ending was last followed by what

    def __len__(self) -> int:
        return len(self._text)

    def prefill(self, tokens: Sequence[int]) -> None:
        self._read(tokens)

    def propose(
        self, tokens: Sequence[int], k: int, params: SamplingParams, rng: np.random.Generator
    ) -> Draft:
        self._read(tokens[len(self._text) :])
        for size in self._sizes:
            place = self._after.get(tuple(self._text[-size:]))
            if place is not None:
                return Draft(self._until_end(self._text[place : place + k]))
        return Draft()

    def rollback(self, length: int) -> None:
        kept = self._text[:length]
        if len(kept) < length:
            raise ValueError(f"cannot roll {len(kept)} tokens back to {length}")
        if length < len(self._text):
            self._text, self._after = [], {}
            self._read(kept)

    def _read(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            for size in self._sizes:
                if size <= len(self._text):
                    self._after[tuple(self._text[-size:])] = len(self._text)
            self._text.append(token)

    def _until_end(self, tokens: Sequence[int]) -> tuple[int, ...]:
        for place, token in enumerate(tokens, start=1):
            if token in self._end_ids:
                return tuple(tokens[:place])
        return tuple(tokens)
