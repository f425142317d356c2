"""Eviction by attention mass: the last tokens, and of those before them the ones that were attended
to most, "heavy hitters" (H2O, Zhang et al. 2023, 2306.14048).

Lossy: tokens are forgotten, and logits are no longer those of the whole text. So memory and time
are bounded; the text ends at the model's context, since tokens keep the positions that they have in
it. No key is changed, so quantised ones can be kept too.

OpenVINO's transformation adds an output for each layer with the mass that every cached token gets
from the tokens of a pass, over all heads; logits stay the same. The plugin keeps blocks, so the
mass of a block is what counts: the sum over its tokens, all layers and all passes. Older blocks
have been attended to for longer, and are favoured by that, as in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pipeline.runtime.kv_cache.block_pool import BlockPool
from pipeline.runtime.kv_cache.paged import (
    BLOCK_SIZE,
    PAGED,
    PagedCaches,
    PagedKVCache,
    prepare_paged,
)
from pipeline.runtime.kv_cache.policy import (
    Inputs,
    UnsupportedPolicyError,
)
from pipeline.runtime.kv_cache.window import CAPACITY, FAMILIES

if TYPE_CHECKING:
    import openvino as ov

RECENT = 8 * BLOCK_SIZE  # tokens at the end of the text, in blocks that are never evicted
_MASS = "scores."  # outputs, float32[tokens that each sequence attends to, one after the other]
_FROM = "score_aggregation_window"  # an input, int32[sequences]: from how many of its last tokens


def _prepare(model: ov.Model, family: str, device: str) -> None:
    """As for a paged cache, with attention masses."""
    if family not in FAMILIES:
        raise UnsupportedPolicyError(f"not verified for the family {family}")
    prepare_paged(model, family, device, use_score_outputs=True, allow_score_aggregation=True)


class MassKVCache(PagedKVCache):
    """One sequence's last blocks, and of those before them the ones with the most attention mass.

    Whole blocks are evicted, before a forward pass that would not fit.
    """

    def __init__(self, request: ov.InferRequest, pool: BlockPool, batch_invariant: bool) -> None:
        super().__init__(request, pool, batch_invariant)
        names = (port.any_name for port in request.get_compiled_model().outputs)
        self._scores = [request.get_tensor(name) for name in names if name.startswith(_MASS)]
        self._mass: list[float] = []  # of each block in the table
        self._unread: list[int] = []  # tokens that each sequence of the last pass attended to
        self._least = 0  # tokens that a rollback must leave, if it leaves any

    def start_from(self, prefix: PagedKVCache) -> None:
        assert isinstance(prefix, MassKVCache)
        super().start_from(prefix)
        prefix._observe()
        self._mass += prefix._mass
        self._forgotten, self._least = prefix._forgotten, prefix._least

    def append(self, tokens: Sequence[int], pad_to: int = 0) -> Inputs:
        self._observe()
        while self._length - self._forgotten + len(tokens) > CAPACITY:
            self._evict()
        inputs = super().append(tokens, pad_to)
        counts = np.diff(inputs["subsequence_begins"])
        if _FROM not in inputs or inputs[_FROM].shape != counts.shape:
            inputs[_FROM] = np.zeros_like(counts)
        inputs[_FROM][...] = counts
        parts = len(tokens) if len(tokens) <= self._max_split else 1  # the rest is padding
        self._unread = (inputs["past_lens"] + counts)[-parts:].tolist()
        return inputs

    def rollback(self, length: int) -> None:
        if 0 < length < self._least:
            raise ValueError(f"cannot roll back to {length}: tokens before {self._least} are gone")
        self._observe()  # tokens that are dropped have attended too
        if not length:
            self._forgotten = self._least = 0
        super().rollback(length)
        del self._mass[len(self._table) :]

    def _observe(self) -> None:
        """Adds the mass that each block got in the last pass. The request keeps its outputs."""
        if not self._unread:
            return
        layers = np.stack([tensor.data for tensor in self._scores])
        mass: NDArray[np.float64] = layers.sum(axis=0, dtype=np.float64)
        blocks = np.zeros(len(self._table))
        blocks[: len(self._mass)] = self._mass
        end = len(mass)
        for attended in reversed(self._unread):
            got = np.add.reduceat(mass[end - attended : end], range(0, attended, BLOCK_SIZE))
            blocks[: len(got)] += got
            end -= attended
        self._mass, self._unread = blocks.tolist(), []

    def _evict(self) -> None:
        """Frees the block with the least mass of those before the recent ones."""
        old = len(self._table) - RECENT // BLOCK_SIZE
        self._least = max(self._least, self._forgotten + old * BLOCK_SIZE)
        place = min(range(old), key=self._mass.__getitem__)
        self.pool.free([self._table.pop(place)])
        del self._mass[place]
        self._forgotten += BLOCK_SIZE
        self._layout = None


MASS = replace(
    PAGED,
    name="mass",
    summary=f"last tokens and those attended to most, {CAPACITY} in all; lossy",
    about=f"of the last {RECENT} tokens and of those before them that were attended to most, "
    f"{CAPACITY} at most, in blocks of {BLOCK_SIZE}. It forgets the others: its text may differ "
    "from an exact cache’s.",
    caches=lambda setup: PagedCaches(setup, MassKVCache),
    prepare=_prepare,
    exact=False,
)
