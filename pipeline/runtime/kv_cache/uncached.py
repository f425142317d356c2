"""No cache: every forward pass processes the whole text. A baseline for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pipeline.runtime.kv_cache.policy import CachePolicy, Inputs
from pipeline.runtime.kv_cache.stateful import stateful_inputs

if TYPE_CHECKING:
    import openvino as ov


class Uncached:
    """Stores the tokens, but no keys and values."""

    nbytes = 0

    def __init__(self, request: ov.InferRequest) -> None:
        self._request = request
        self._tokens: list[int] = []

    def __len__(self) -> int:
        return len(self._tokens)

    def append(self, tokens: Sequence[int], pad_to: int = 0) -> Inputs:
        self._request.reset_state()
        self._tokens += tokens
        length = len(self._tokens)
        return stateful_inputs(self._tokens, np.arange(length), np.ones(length, np.int64))

    def rollback(self, length: int) -> None:
        if not 0 <= length <= len(self._tokens):
            raise ValueError(f"cannot roll {len(self._tokens)} tokens back to {length}")
        del self._tokens[length:]


UNCACHED = CachePolicy(
    name="uncached",
    summary="reads the whole text in every pass",
    about="nowhere: every forward pass reads the whole text again.",
    caches=lambda setup: Uncached,
    limitable=True,
)
