"""Several paged sequences of a model in one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pipeline.runtime.kv_cache.paged import PagedKVCache
from pipeline.runtime.kv_cache.policy import Inputs

if TYPE_CHECKING:
    import openvino as ov

_MIN_TOKENS = 2  # of a pass: the matrix products of a single row use another kernel


class PagedBatch:
    """The caches of several sequences, which a forward pass extends together.

    As in `PagedKVCache`, each token goes to the plugin as a sequence of one token, here with the
    blocks of its own sequence, and padding as a sequence without a past.

    Args:
        request: an infer request of the caches' model.
        caches: of one pool, whose keys and values are not quantised.
    """

    def __init__(self, request: ov.InferRequest, caches: Sequence[PagedKVCache]) -> None:
        self._request, self._caches, self._pool = request, caches, caches[0].pool
        if self._pool.quantised:
            raise ValueError("a block that is quantised as a whole takes one token at a time")
        self._bound: dict[str, ov.Tensor] = {}
        self._inputs: Inputs = {}

    @property
    def lengths(self) -> list[int]:
        """Tokens of each sequence."""
        return [*map(len, self._caches)]

    def append(self, tokens: Sequence[Sequence[int]], pad_to: int = 0) -> Inputs:
        """Allocates slots for the new tokens of each sequence, of which some may have none.

        Args:
            tokens: by sequence.
            pad_to: tokens to pad the forward pass to. Padding comes first.

        Returns:
            Arrays that the next call may overwrite.
        """
        new = [(place, token) for place, each in enumerate(tokens) for token in each]
        padding = max(0, max(pad_to, _MIN_TOKENS) - len(new))
        positions = [
            past + place
            for past, each in zip(self.lengths, tokens, strict=True)
            for place in range(len(each))
        ]
        extended = zip(self._caches, tokens, strict=True)
        tables = [cache.extend(len(each)) for cache, each in extended]
        blocks = [[self._pool.padding_block]] * padding + [tables[place] for place, _ in new]
        made: Inputs = {
            "input_ids": np.array([0] * padding + [token for _, token in new], np.int64),
            "position_ids": np.array([0] * padding + positions, np.int64),
            "past_lens": np.array([0] * padding + positions, np.int32),
            "subsequence_begins": np.arange(len(blocks) + 1, dtype=np.int32),
            "block_indices": self._indices(blocks, max(map(len, tables))),
            "block_indices_begins": np.cumsum([0, *map(len, blocks)], dtype=np.int32),
            "max_context_len": np.array(max(self.lengths), np.int32),
        }
        self._bind_pool()
        for name, value in made.items():
            # The same array if possible: binding another one is slow.
            if name not in self._inputs or self._inputs[name].shape != value.shape:
                self._inputs[name] = value
            self._inputs[name][...] = value
        return self._inputs

    def rollback(self, lengths: Sequence[int]) -> None:
        """Drops all but the first tokens of each sequence; ValueError if it has fewer."""
        for cache, length in zip(self._caches, lengths, strict=True):
            cache.rollback(length)

    def _indices(self, blocks: list[Sequence[int]], most: int) -> NDArray[np.int32]:
        """All blocks, in an array that has one size as long as the longest table has."""
        flat = [block for each in blocks for block in each]
        indices = np.full(len(blocks) * most, self._pool.padding_block, np.int32)
        indices[: len(flat)] = flat
        return indices

    def _bind_pool(self) -> None:
        """Binds the pool's tensors, which are others once it has grown."""
        if self._bound is not self._pool.tensors:
            self._bound = self._pool.tensors
            for name, tensor in self._bound.items():
                self._request.set_tensor(name, tensor)
