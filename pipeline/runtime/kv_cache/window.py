"""Attention sink and window: the first tokens and the last ones (Xiao et al. 2023, 2309.17453).

Lossy: tokens between them are forgotten, and logits are no longer those of the whole text. So a
text of any length takes bounded memory and time, and may be longer than the model's context.

Whole blocks are kept: the first of the text, and the last ones. When the cache is full, the oldest
block after the first is freed, before a forward pass.

Positions are as in the paper those within the cache, so that no distance is longer than the cache.
Rotary embeddings depend on differences of positions only; so the newer tokens keep the positions
that they have in the text, and the few keys of the first block are moved after them: rotated by as
many positions as tokens were forgotten, each time from the keys as they were computed.

The CPU plugin of OpenVINO 2026.4 can rotate keys itself (`allow_cache_rotation`), but not quantised
ones either, and it keeps no keys as they were computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pipeline.runtime.kv_cache.block_pool import BlockPool
from pipeline.runtime.kv_cache.paged import BLOCK_SIZE, PAGED, PagedCaches, PagedKVCache
from pipeline.runtime.kv_cache.policy import (
    CacheSetup,
    Inputs,
    Rotary,
    UnsupportedPolicyError,
)

if TYPE_CHECKING:
    import openvino as ov

SINK = BLOCK_SIZE  # tokens at the beginning of the text
CAPACITY = 16 * BLOCK_SIZE  # tokens in all, those of the next forward pass included
FAMILIES = frozenset(("llama", "qwen2", "qwen3", "gpt_neox"))  # all layers see the whole cache


def _prepare(model: ov.Model, family: str, device: str) -> None:
    """As for a paged cache, of models with rotary embeddings in every layer."""
    if family not in FAMILIES:
        raise UnsupportedPolicyError(f"not verified for the family {family}")
    PAGED.prepare(model, family, device)


class WindowKVCache(PagedKVCache):
    """One sequence's first block and its last ones.

    Args:
        rotary: the model's embeddings.
    """

    def __init__(
        self, request: ov.InferRequest, pool: BlockPool, batch_invariant: bool, rotary: Rotary
    ) -> None:
        super().__init__(request, pool, batch_invariant)
        self._rotary = rotary
        self._sink_keys: list[NDArray[np.float32]] = []  # as computed, of each layer

    def append(self, tokens: Sequence[int], pad_to: int = 0) -> Inputs:
        while self._length - self._forgotten + len(tokens) > CAPACITY:
            self._forget()
        return super().append(tokens, pad_to)

    def rollback(self, length: int) -> None:
        if 0 < length < self._forgotten + SINK and self._forgotten:
            raise ValueError(f"cannot roll back to {length}: {self._forgotten} are forgotten")
        if not length:
            self._forgotten = 0
            self._sink_keys.clear()
        super().rollback(length)

    def _forget(self) -> None:
        """Frees the oldest block after the sink, and moves the sink after it."""
        self._table[0] = self.pool.writable(self._table[0])
        self.pool.free([self._table.pop(1)])
        self._layout = None
        keys = self.pool.keys(self._table[0])
        if not self._sink_keys:
            self._sink_keys = [each.astype(np.float32) for each in keys]
        self._forgotten += BLOCK_SIZE
        for each, computed in zip(keys, self._sink_keys, strict=True):
            each[...] = rotated(computed, self._forgotten, self._rotary)


def rotated(keys: NDArray[np.float32], positions: int, rotary: Rotary) -> NDArray[np.float32]:
    """Keys with rotary embeddings, as they are so many positions later.

    Args:
        keys: float32[heads, tokens, head size].
    """
    size = int(keys.shape[-1] * rotary.share)
    angles = positions * rotary.base ** (-np.arange(0, size, 2) / size)  # float64[size / 2]
    cos, sin = np.cos(angles), np.sin(angles)
    first, second = keys[..., : size // 2], keys[..., size // 2 : size]
    moved = keys.copy()
    moved[..., : size // 2] = first * cos - second * sin
    moved[..., size // 2 : size] = second * cos + first * sin
    return moved


def _caches(setup: CacheSetup) -> PagedCaches:
    if setup.rotary is None:
        raise UnsupportedPolicyError("its rotary embeddings are not of the default type")
    caches = PagedCaches(setup, partial(WindowKVCache, rotary=setup.rotary))
    if caches.pool.quantised:
        raise UnsupportedPolicyError("quantised keys cannot be moved")
    return caches


WINDOW = replace(
    PAGED,
    name="window",
    summary=f"first block and last tokens, {CAPACITY} in all; lossy",
    about=f"of the first {SINK} tokens and of the last, {CAPACITY} at most, in blocks of "
    f"{BLOCK_SIZE}. It forgets those between: its text may differ from an exact cache’s.",
    caches=_caches,
    prepare=_prepare,
    exact=False,
    unbounded=True,
)
