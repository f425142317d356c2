"""The IR's own states, with masked slots instead of trimming after a rollback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pipeline.runtime.kv_cache.policy import CachePolicy, Inputs
from pipeline.runtime.kv_cache.stateful import stateful_inputs, token_bytes

if TYPE_CHECKING:
    import openvino as ov


class MaskedKVCache:
    """Rolls back by masking: rejected slots stay in memory and are never attended to."""

    def __init__(self, request: ov.InferRequest) -> None:
        self._request = request
        self._slots: list[int] = []  # slot of each token that counts
        self._held = 0  # slots in the states
        self._token_bytes = token_bytes(request)

    @property
    def nbytes(self) -> int:
        return self._held * self._token_bytes

    def __len__(self) -> int:
        return len(self._slots)

    def append(self, tokens: Sequence[int], pad_to: int = 0) -> Inputs:
        if not self._slots:
            self._request.reset_state()
            self._held = 0
        past = len(self._slots)
        self._slots.extend(range(self._held, self._held + len(tokens)))
        self._held += len(tokens)
        mask = np.zeros(self._held, np.int64)
        mask[self._slots] = 1
        return stateful_inputs(tokens, np.arange(past, len(self._slots)), mask)

    def rollback(self, length: int) -> None:
        if not 0 <= length <= len(self._slots):
            raise ValueError(f"cannot roll {len(self._slots)} tokens back to {length}")
        del self._slots[length:]


MASKED = CachePolicy(
    name="stateful-masked",
    summary="masks what is rolled back",
    about="in the model’s own states, without blocks. Tokens that are rolled back stay in place, "
    "masked, and take memory until the end.",
    caches=lambda setup: MaskedKVCache,
)
