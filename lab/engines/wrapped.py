"""Wrappers around models whose forward passes a benchmark times, reads or changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.decoding.lm import BlockDraft, CausalLM, Hidden, Output


class WrappedLM:
    """Delegates to the model; subclasses override `forward`."""

    def __init__(self, model: CausalLM) -> None:
        self._model = model
        self.vocab_size, self.token_ids = model.vocab_size, model.token_ids

    @property
    def kv_bytes(self) -> int:
        return self._model.kv_bytes

    def __len__(self) -> int:
        return len(self._model)

    def forward(self, tokens: Sequence[int], logits_to_keep: int, pad_to: int = 0) -> Output:
        return self._model.forward(tokens, logits_to_keep, pad_to)

    def rollback(self, length: int) -> None:
        self._model.rollback(length)


class WrappedBlock:
    """Delegates to the block draft; subclasses override `forward` or `after`."""

    def __init__(self, model: BlockDraft) -> None:
        self._model = model
        self.vocab_size, self.token_ids = model.vocab_size, model.token_ids
        self.length = model.length

    @property
    def kv_bytes(self) -> int:
        return self._model.kv_bytes

    def __len__(self) -> int:
        return len(self._model)

    def forward(self, tokens: Sequence[int], hidden: Hidden, length: int) -> NDArray[np.float32]:
        return self._model.forward(tokens, hidden, length)

    def after(self, logits: NDArray[np.float32], previous: int) -> NDArray[np.float32]:
        return self._model.after(logits, previous)

    def rollback(self, length: int) -> None:
        self._model.rollback(length)
