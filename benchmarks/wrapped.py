"""A model whose runs a benchmark watches or changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.runtime.model import OVCausalLM


class WrappedLM:
    """Does what the model does; to be overridden."""

    def __init__(self, model: OVCausalLM) -> None:
        self._model = model
        self.vocab_size = model.vocab_size

    @property
    def kv_bytes(self) -> int:
        return self._model.kv_bytes

    def __len__(self) -> int:
        return len(self._model)

    def forward(self, tokens: Sequence[int], rows: int, width: int = 0) -> NDArray[np.float32]:
        return self._model.forward(tokens, rows, width)

    def rollback(self, length: int) -> None:
        self._model.rollback(length)
