"""PagedAttention: keys and values in blocks, found through a table (Kwon et al. 2023, 2309.06180).

OpenVINO's own transformation rewrites the stateful graph; the block table is kept here. Rolling
back is a smaller number and blocks put back on a list: O(1), nothing is copied.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from threading import RLock
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino._offline_transformations import paged_attention_transformation

from pipeline.runtime.kv_cache import Inputs

BLOCK = 32  # tokens a block holds on the CPU plugin
MOST_DECODED = 9  # tokens in the widest verification; a longer run is a piece of a prompt
PAD_TO = 32  # longer runs are padded to a multiple, since each width's first run compiles kernels
_FIRST_BLOCKS = 8  # the pool starts with this many and doubles when they are taken


class CannotPageError(Exception):
    """A model that the transformation does not take, or a device without paged caches."""


def prepare(model: ov.Model) -> None:
    """Rewrites, in place, a stateful model to attend through blocks.

    Raises:
        CannotPageError: why it could not.
    """
    try:
        paged_attention_transformation(model)
    except RuntimeError as error:
        raise CannotPageError(str(error).strip().splitlines()[-1]) from None


class BlockPool:
    """The blocks of one compiled model: its sequences take them, share them and give them back.

    Args:
        compiled: a prepared model. Its sequences' key and value tensors are this pool's.
        lock: held by whoever runs the model, so that the pool cannot grow meanwhile.
    """

    def __init__(self, compiled: ov.CompiledModel, lock: RLock) -> None:
        ports = {p.any_name: p for p in compiled.inputs if "_cache." in p.any_name}
        self._types = {name: port.element_type for name, port in ports.items()}
        self._shapes = {
            name: [size.get_length() for size in list(port.partial_shape)[1:]]
            for name, port in ports.items()
        }
        self._lock = lock
        self._users: list[int] = []  # of each block
        self._free: list[int] = []
        self.tensors: dict[str, ov.Tensor] = {}
        self._grow(_FIRST_BLOCKS)
        self.block_bytes: int = sum(t.byte_size for t in self.tensors.values()) // _FIRST_BLOCKS
        self.scratch = self.take()  # where the keys and values of padding go

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks, in use or not."""
        return len(self._users) * self.block_bytes

    def take(self) -> int:
        """A block for one user."""
        with self._lock:
            if not self._free:
                self._grow(2 * len(self._users))
            block = self._free.pop()
            self._users[block] = 1
            return block

    def share(self, blocks: Iterable[int]) -> None:
        """One more user of each."""
        with self._lock:
            for block in blocks:
                self._users[block] += 1

    def give(self, blocks: Iterable[int]) -> None:
        """One user less of each; what nobody uses can be taken again."""
        with self._lock:
            for block in blocks:
                self._users[block] -= 1
                if not self._users[block]:
                    self._free.append(block)

    def own(self, block: int) -> int:
        """The block, or a copy of it if others use it too: before it is written."""
        with self._lock:
            if self._users[block] == 1:
                return block
            copy = self.take()
            for blocks in map(_by_block, self.tensors.values()):
                blocks[copy] = blocks[block]
            self.give([block])
            return copy

    def _grow(self, capacity: int) -> None:
        """Larger tensors with the same blocks at their front. New ones: the old may be in use."""
        old, count = self.tensors, len(self._users)
        self.tensors = {
            name: ov.Tensor(kind, ov.Shape([capacity, *self._shapes[name]]))
            for name, kind in self._types.items()
        }
        for name, tensor in old.items():
            _by_block(self.tensors[name])[:count] = _by_block(tensor)
        # Popped from the end: the lowest blocks go first, which keeps tables in order.
        self._free[:0] = reversed(range(count, capacity))
        self._users += [0] * (capacity - count)


def _by_block(tensor: ov.Tensor) -> NDArray[Any]:
    """Its memory, a row for each block. Of packed types, two values are one byte."""
    rows: NDArray[Any] = tensor.data.reshape(tensor.shape[0], -1)
    return rows


class PagedKVCache:
    """One sequence's blocks.

    The tokens of a decoding run are given to the plugin as sequences of one token each, which
    share this one's blocks: it attends faster so, the more so the longer the context, and the
    kernel is then the same for every number of tokens. Only the matrix products take another one
    for a single row. So where `widths_agree` is asked for, a lone token gets company: filler, a
    sequence of its own in a block that nobody reads. It also pads runs to the width asked for, and
    the pieces of a prompt.

    A quantised block is quantised as a whole while it fills, so there a run stays one sequence.

    Args:
        request: an infer request of the pool's model.
        pool: where its blocks come from.
        widths_agree: logits do not depend on how many tokens are run at once.
    """

    def __init__(self, request: ov.InferRequest, pool: BlockPool, widths_agree: bool) -> None:
        self._request, self._pool = request, pool
        self._least_tokens = 2 if widths_agree else 1
        quantised = any(not t.element_type.is_real() for t in pool.tensors.values())
        self._most_split = 0 if quantised else MOST_DECODED
        self._length = 0
        self._table: list[int] = []  # physical block of each logical block
        self._bound: dict[str, ov.Tensor] = {}
        self._layout: Inputs = {}
        self._laid_out: tuple[int, int] | None = None  # padding and tokens of `_layout`
        giving = weakref.finalize(self, pool.give, self._table)
        giving.atexit = False  # or the process would wait for a run that is still at work

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks in use."""
        return len(self._table) * self._pool.block_bytes

    def __len__(self) -> int:
        return self._length

    def continue_from(self, other: PagedKVCache) -> None:
        """Takes over what another one holds. Nothing is copied until one of them writes there."""
        self.rollback(0)
        self._pool.share(other._table)
        self._table += other._table
        self._laid_out = None
        self._length = other._length

    def append(self, tokens: Sequence[int], width: int = 0) -> Inputs:
        past, count = self._length, len(tokens)
        self._length += count
        self._make_room(past)
        decoding = count <= MOST_DECODED
        padding = max(0, max(width, self._least_tokens) - count) if decoding else -count % PAD_TO
        if self._laid_out != (padding, count):
            self._laid_out = padding, count
            for name, value in self._lay_out(padding, count).items():
                # The same array if it can be: to tell the plugin of another takes long.
                if name not in self._layout or self._layout[name].shape != value.shape:
                    self._layout[name] = value
                self._layout[name][...] = value
        inputs = self._layout
        inputs["input_ids"][padding:] = tokens
        sequences = count if count <= self._most_split else 1
        inputs["position_ids"][padding:] = np.arange(past, self._length)
        inputs["past_lens"][-sequences:] = inputs["position_ids"][padding : padding + sequences]
        inputs["max_context_len"][...] = max(self._length, padding)
        return inputs

    def rollback(self, length: int) -> None:
        if not 0 <= length <= self._length:
            raise ValueError(f"cannot roll {self._length} tokens back to {length}")
        self._length = length
        while len(self._table) * BLOCK - length >= BLOCK:
            self._pool.give([self._table.pop()])
            self._laid_out = None

    def _lay_out(self, padding: int, count: int) -> Inputs:
        """Which tokens are a sequence, and in which blocks. Padding comes first, without a past."""
        if count <= self._most_split:
            fillers, parts, begins = padding, count, [*range(padding + count + 1)]
        else:
            fillers, parts = min(padding, 1), 1
            begins = [*[0] * fillers, padding, padding + count]
        own = len(self._table)
        blocks = np.full((fillers + parts) * own, self._pool.scratch, np.int32)
        blocks[fillers : fillers + parts * own] = self._table * parts
        block_begins = [*range(fillers), *(fillers + part * own for part in range(parts + 1))]
        return {
            "input_ids": np.zeros(padding + count, np.int64),
            "position_ids": np.zeros(padding + count, np.int64),
            "past_lens": np.zeros(fillers + parts, np.int32),
            "subsequence_begins": np.array(begins, np.int32),
            "block_indices": blocks,  # as many for every run of a width; the end may be unused
            "block_indices_begins": np.array(block_begins, np.int32),
            "max_context_len": np.zeros((), np.int32),
        }

    def _make_room(self, past: int) -> None:
        """Blocks of its own for what is written from `past` on, in the pool's present tensors."""
        for place in range(past // BLOCK, len(self._table)):
            if (own := self._pool.own(self._table[place])) != self._table[place]:
                self._table[place], self._laid_out = own, None
        while len(self._table) * BLOCK < self._length:
            self._table.append(self._pool.take())
            self._laid_out = None
        if self._bound is not self._pool.tensors:
            self._bound = self._pool.tensors
            for name, tensor in self._bound.items():
                self._request.set_tensor(name, tensor)
