"""The blocks that the sequences of one model share: allocated, freed, and copied on write."""

from __future__ import annotations

from collections.abc import Iterable
from threading import RLock
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

if TYPE_CHECKING:
    import openvino as ov

_FIRST_BLOCKS = 8  # of a new pool, which doubles whenever they are all allocated


class BlockPool:
    """The key and value tensors of one compiled model, and the reference counts of their blocks.

    Args:
        compiled: a model prepared for paged attention. Its sequences bind this pool's tensors.
        lock: held during a forward pass, so that the pool cannot grow meanwhile.
    """

    def __init__(self, compiled: ov.CompiledModel, lock: RLock) -> None:
        ports = {p.any_name: p for p in compiled.inputs if "_cache." in p.any_name}
        self._types = {name: port.element_type for name, port in ports.items()}
        self._shapes = {
            name: [size.get_length() for size in list(port.partial_shape)[1:]]
            for name, port in ports.items()
        }
        self._lock = lock
        self._ref_counts: list[int] = []  # of each block: the sequences that use it
        self._free: list[int] = []
        self.tensors: dict[str, ov.Tensor] = {}
        self._grow(_FIRST_BLOCKS)
        self.block_bytes: int = sum(t.byte_size for t in self.tensors.values()) // _FIRST_BLOCKS
        self.padding_block = self.allocate()  # for the keys and values of padding

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks, in use or not."""
        return len(self._ref_counts) * self.block_bytes

    @property
    def quantised(self) -> bool:
        """Whether any keys or values are integers."""
        return any(not kind.is_real() for kind in self._types.values())

    def allocate(self) -> int:
        """Allocates a block, with one reference."""
        with self._lock:
            if not self._free:
                self._grow(2 * len(self._ref_counts))
            block = self._free.pop()
            self._ref_counts[block] = 1
            return block

    def add_ref(self, blocks: Iterable[int]) -> None:
        """Adds a reference to each block."""
        with self._lock:
            for block in blocks:
                self._ref_counts[block] += 1

    def free(self, blocks: Iterable[int]) -> None:
        """Removes a reference from each block; a block without references is free."""
        with self._lock:
            for block in blocks:
                self._ref_counts[block] -= 1
                if not self._ref_counts[block]:
                    self._free.append(block)

    def writable(self, block: int) -> int:
        """The block if it has no other references, else a copy that replaces the caller's."""
        with self._lock:
            if self._ref_counts[block] == 1:
                return block
            copy = self.allocate()
            for blocks in map(_by_block, self.tensors.values()):
                blocks[copy] = blocks[block]
            self.free([block])
            return copy

    def _grow(self, capacity: int) -> None:
        """Allocates larger tensors and copies the blocks; the old tensors may still be in use."""
        import openvino as ov

        old, count = self.tensors, len(self._ref_counts)
        self.tensors = {
            name: ov.Tensor(kind, ov.Shape([capacity, *self._shapes[name]]))
            for name, kind in self._types.items()
        }
        for name, tensor in old.items():
            _by_block(self.tensors[name])[:count] = _by_block(tensor)
        # Popped from the end: the lowest blocks go first, which keeps tables in order.
        self._free[:0] = reversed(range(count, capacity))
        self._ref_counts += [0] * (capacity - count)


def _by_block(tensor: ov.Tensor) -> NDArray[Any]:
    """The tensor's memory, a row for each block. Packed types hold two values in a byte."""
    rows: NDArray[Any] = tensor.data.reshape(tensor.shape[0], -1)
    return rows
