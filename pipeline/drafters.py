"""Who proposes the tokens that the target verifies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.sampling import SamplingParams, draw, probabilities
from pipeline.speculation import Draft


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
