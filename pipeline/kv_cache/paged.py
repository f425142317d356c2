"""PagedAttention: keys and values in blocks, found through a table (Kwon et al. 2023, 2309.06180).

OpenVINO's own transformation rewrites the stateful graph; the block table is kept here. Rolling
back is a smaller number and blocks put back on a list: O(1), nothing is copied.
"""

from __future__ import annotations

import numpy as np
import openvino as ov
from openvino._offline_transformations import paged_attention_transformation

from pipeline.kv_cache import Inputs, Tokens

BLOCK = 32  # tokens a block holds on the CPU plugin
_FIRST_BLOCKS = 4  # the pool starts with this many and doubles when they are taken


def prepare(model: ov.Model) -> None:
    """Rewrites, in place, a stateful model to attend through blocks."""
    paged_attention_transformation(model)


class PagedKVCache:
    """One sequence's blocks in a pool that grows with it.

    Args:
        request: an infer request of a prepared, compiled model. Its key and value tensors are
            owned by this cache.
    """

    def __init__(self, request: ov.InferRequest) -> None:
        self._request = request
        inputs = request.model_inputs
        self._pools = {p.any_name: p for p in inputs if "_cache." in p.any_name}
        self._capacity = 0
        self._length = 0
        self._table: list[int] = []  # physical block of each logical block
        self._free: list[int] = []
        self._grow(_FIRST_BLOCKS)
        self._block_bytes: int = sum(
            request.get_tensor(name).byte_size // self._capacity for name in self._pools
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks in use."""
        return len(self._table) * self._block_bytes

    def __len__(self) -> int:
        return self._length

    def append(self, tokens: Tokens) -> Inputs:
        past, length = self._length, self._length + len(tokens)
        while len(self._table) * BLOCK < length:
            if not self._free:
                self._grow(2 * self._capacity)
            self._table.append(self._free.pop())
        self._length = length
        return {
            "input_ids": tokens,
            "position_ids": np.arange(past, length),
            "past_lens": np.array([past], np.int32),
            "subsequence_begins": np.array([0, len(tokens)], np.int32),
            "block_indices": np.array(self._table, np.int32),
            "block_indices_begins": np.array([0, len(self._table)], np.int32),
            "max_context_len": np.array(length, np.int32),
        }

    def rollback(self, length: int) -> None:
        if not 0 <= length <= self._length:
            raise ValueError(f"cannot roll {self._length} tokens back to {length}")
        self._length = length
        while len(self._table) * BLOCK - length >= BLOCK:
            self._free.append(self._table.pop())

    def _grow(self, capacity: int) -> None:
        """A larger pool with the same blocks at its front."""
        for name, port in self._pools.items():
            shape = [capacity, *(d.get_length() for d in list(port.partial_shape)[1:])]
            pool = ov.Tensor(port.element_type, ov.Shape(shape))
            if self._capacity:
                pool.data[: self._capacity] = self._request.get_tensor(name).data
            self._request.set_tensor(name, pool)
        # Popped from the end: the lowest blocks go first, which keeps the table in order.
        self._free[:0] = reversed(range(self._capacity, capacity))
        self._capacity = capacity
