"""The blocks that the sequences of one model share: allocated, freed, recycled, copied on write.

The pool grows when all blocks are in use, and shrinks when most of them are not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from threading import RLock
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from pipeline.environment import PoolUse
from pipeline.runtime.kv_cache.policy import CacheSetup

if TYPE_CHECKING:
    import openvino as ov

_FIRST_BLOCKS = 8  # of a new pool, which doubles whenever they are all allocated
_KEPT_BLOCKS = 32  # of an idle pool, so that a usual run need not grow it again
_IDLE_SHARE = 4  # a pool shrinks when at most one in so many of its blocks is in use


class BlockPool:
    """The key and value tensors of one compiled model, and the reference counts of their blocks.

    Args:
        setup: of a model prepared for paged attention. Its sequences bind this pool's tensors,
            which grow at the beginning of a forward pass, before they are bound, and shrink only
            between forward passes.

    Attributes:
        allocated: blocks allocated so far, recycled ones included.
        resized: times that its blocks were copied to tensors of another size.

    Raises:
        UserError: there is not enough memory for the first blocks.
    """

    def __init__(self, setup: CacheSetup) -> None:
        ports = {p.any_name: p for p in setup.compiled.inputs if "_cache." in p.any_name}
        self._types = {name: port.element_type for name, port in ports.items()}
        self._shapes = {
            name: [size.get_length() for size in list(port.partial_shape)[1:]]
            for name, port in ports.items()
        }
        self._passing, self._memory = setup.lock, setup.kv_memory
        self._lock = RLock()
        self._ref_counts: list[int] = []  # of each block: the sequences that use it
        self._free: list[int] = []  # a heap: the lowest goes first, so that the end becomes free
        self._abandoned: deque[Sequence[int]] = deque()  # to be freed
        self._fresh = 0  # the lowest block that was never in use
        self._shared = self._high_water = self._recycled = self._copied = 0
        self.allocated = self.resized = 0
        self.tensors = self._allocated(1)
        self.block_bytes: int = sum(tensor.byte_size for tensor in self.tensors.values())
        self.tensors = {}
        self._memory.add(self)
        self._grow(_FIRST_BLOCKS)
        self.padding_block = self.allocate()  # for the keys and values of padding

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks, in use or not."""
        return len(self._ref_counts) * self.block_bytes

    @property
    def quantised(self) -> bool:
        """Whether any keys or values are integers."""
        return any(not kind.is_real() for kind in self._types.values())

    @property
    def use(self) -> PoolUse:
        """The pool as it is now."""
        with self._lock:
            self._collect()
            return PoolUse(
                pool_bytes=self.nbytes,
                blocks=len(self._ref_counts),
                used=self._used,
                shared=self._shared,
                high_water=self._high_water,
                recycled=self._recycled,
                copied=self._copied,
            )

    def allocate(self) -> int:
        """Allocates a block, with one reference.

        Raises:
            UserError: all are in use, and the memory's limit allows no more.
        """
        with self._lock:
            self._collect()
            if not self._free:
                self._grow(len(self._ref_counts))
            block = heappop(self._free)
            self._ref_counts[block] = 1
            self.allocated += 1
            self._high_water = max(self._high_water, self._used)
            self._recycled += block < self._fresh
            self._fresh = max(self._fresh, block + 1)
            return block

    def add_ref(self, blocks: Iterable[int]) -> None:
        """Adds a reference to each block."""
        with self._lock:
            for block in blocks:
                self._ref_counts[block] += 1
                self._shared += self._ref_counts[block] == 2

    def free(self, blocks: Iterable[int]) -> None:
        """Removes a reference from each block; a block without references is free."""
        with self._lock:
            for block in blocks:
                self._ref_counts[block] -= 1
                self._shared -= self._ref_counts[block] == 1
                if not self._ref_counts[block]:
                    heappush(self._free, block)
            if self._used * _IDLE_SHARE <= len(self._ref_counts) > _KEPT_BLOCKS:
                self._shrink(_KEPT_BLOCKS)

    def abandon(self, blocks: Sequence[int]) -> None:
        """Frees the blocks of a sequence that was dropped, when the pool is next used: the garbage
        collector may drop it in any thread, even while that thread changes the pool.
        """
        self._abandoned.append(blocks)

    def writable(self, block: int) -> int:
        """The block if it has no other references, else a copy that replaces the caller's.

        Raises:
            UserError: as for `allocate`.
        """
        with self._lock:
            if self._ref_counts[block] == 1:
                return block
            copy = self.allocate()
            for blocks in map(_by_block, self.tensors.values()):
                blocks[copy] = blocks[block]
            self._copied += 1
            self.free([block])
            return copy

    def keys(self, block: int) -> list[NDArray[Any]]:
        """The keys of a block in each layer, [heads, tokens, head size]."""
        return [t.data[block] for name, t in self.tensors.items() if name.startswith("key_cache.")]

    def contents(self, block: int) -> list[NDArray[Any]]:
        """The memory of a block in each tensor. Packed types hold two values in a byte."""
        return [_by_block(tensor)[block] for tensor in self.tensors.values()]

    def trim(self) -> None:
        """Returns memory beyond the last block in use, unless a forward pass is under way."""
        if self._lock.acquire(blocking=False):  # else another thread changes the pool just now
            try:
                self._collect()
                self._shrink(_FIRST_BLOCKS)
            finally:
                self._lock.release()

    @property
    def _used(self) -> int:
        return len(self._ref_counts) - len(self._free)

    def _collect(self) -> None:
        """Frees what was abandoned."""
        while self._abandoned:
            self.free(self._abandoned.popleft())

    def _grow(self, most: int) -> None:
        """Adds `most` blocks, or as many as the memory's limit allows, at least one."""
        with self._memory.room(self.block_bytes, most * self.block_bytes) as left:
            before = len(self._ref_counts)
            self._resize(before + left // self.block_bytes)
        self._free += range(before, len(self._ref_counts))  # larger than all, so still a heap

    def _shrink(self, least: int) -> None:
        """Drops the free blocks at the end, but keeps at least so many in all.

        A forward pass writes to the tensors that it has bound. If one is under way, the pool stays
        as it is until more blocks are freed.
        """
        last = max((block for block, count in enumerate(self._ref_counts) if count), default=-1)
        capacity = max(least, last + 1)
        if capacity < len(self._ref_counts) and self._passing.acquire(blocking=False):
            try:
                self._resize(capacity)
                self._free = [block for block in self._free if block < capacity]
                heapify(self._free)
                self._fresh = min(self._fresh, capacity)
            finally:
                self._passing.release()

    def _resize(self, capacity: int) -> None:
        """Copies the blocks to tensors of another size. Sequences bind them in their next pass."""
        old, kept = self.tensors, min(capacity, len(self._ref_counts))
        self.tensors = self._allocated(capacity)
        for name, tensor in old.items():
            _by_block(self.tensors[name])[:kept] = _by_block(tensor)[:kept]
        self._ref_counts = self._ref_counts[:kept] + [0] * (capacity - kept)
        self.resized += kept > 0

    def _allocated(self, capacity: int) -> dict[str, ov.Tensor]:
        import openvino as ov

        return {
            name: ov.Tensor(kind, ov.Shape([capacity, *self._shapes[name]]))
            for name, kind in self._types.items()
        }


def _by_block(tensor: ov.Tensor) -> NDArray[Any]:
    """The tensor's memory, a row for each block. Packed types hold two values in a byte."""
    rows: NDArray[Any] = tensor.data.reshape(tensor.shape[0], -1)
    return rows
