"""PagedAttention: keys and values in blocks, found through a table (Kwon et al. 2023, 2309.06180).

OpenVINO's transformation rewrites the stateful graph; this module manages the block table. A
rollback only shortens the sequence and frees blocks: O(1), without a copy.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.runtime.kv_cache.block_pool import BlockPool
from pipeline.runtime.kv_cache.policy import (
    MAX_DECODE_TOKENS,
    CachePolicy,
    CacheSetup,
    Inputs,
    UnsupportedPolicyError,
)

if TYPE_CHECKING:
    import openvino as ov

BLOCK_SIZE = 32  # tokens; the CPU plugin's
# Families whose paged logits equal the checkpoint's (tests/test_families.py). The transformation
# accepts others too, and gives MPT wrong logits without an error.
_FAMILIES = frozenset(
    ("gpt_neox", "gpt2", "llama", "mistral", "qwen2", "qwen3", "phi", "bloom", "stablelm")
)
# The first forward pass of each size compiles kernels. So prefill uses few sizes, all of which are
# warmed up.
_PREFILL_CHUNK, _PREFILL_MULTIPLE = 128, 32


def prepare_paged(model: ov.Model, family: str, device: str, **added: bool) -> None:
    """Rewrites the model to attend through blocks.

    Args:
        added: options of OpenVINO's transformation, for further inputs and outputs.

    Raises:
        UnsupportedPolicyError: as a policy's `prepare`.
    """
    from openvino._offline_transformations import paged_attention_transformation

    from pipeline.runtime.attention import fuse_attention

    if not device.startswith("CPU"):
        raise UnsupportedPolicyError(f"{device} keeps its own cache")
    if family not in _FAMILIES:
        raise UnsupportedPolicyError(f"not verified for the family {family}")
    fuse_attention(model)
    try:
        paged_attention_transformation(model, **added)
    except RuntimeError as error:
        raise UnsupportedPolicyError(str(error).strip().splitlines()[-1]) from None


class PagedKVCache:
    """One sequence's blocks.

    In decoding, each token of a pass goes to the plugin as a sequence of one token, all of which
    share this sequence's blocks. Attention is then faster, the more so at long contexts, and uses
    the same kernel for every number of tokens. Only matrix products use another kernel for a single
    row; so where logits must be batch-invariant, a single token is padded to two.

    Each token of padding is a sequence without a past, in a block that is never read. Passes are
    also padded to the requested size, and chunks of a prompt to a multiple of 32.

    A quantised block is quantised as a whole as it fills; there, a pass stays one sequence.

    Args:
        request: an infer request of the pool's model.
        pool: where its blocks are allocated.
        batch_invariant: logits do not depend on how many tokens are in a forward pass.
    """

    def __init__(self, request: ov.InferRequest, pool: BlockPool, batch_invariant: bool) -> None:
        self.pool = pool
        self._request = request
        self._min_tokens = 2 if batch_invariant else 1
        self._max_split = 0 if pool.quantised else MAX_DECODE_TOKENS
        self._length = 0
        self._forgotten = 0  # tokens that have no block any more
        self._table: list[int] = []  # physical block of each logical block
        self._bound: dict[str, ov.Tensor] = {}
        self._inputs: Inputs = {}
        self._layout: tuple[int, int] | None = None  # padding and tokens that `_inputs` are for
        weakref.finalize(self, pool.abandon, self._table)

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks in use."""
        return len(self._table) * self.pool.block_bytes

    def __len__(self) -> int:
        return self._length

    def start_from(self, prefix: PagedKVCache) -> None:
        """Shares the blocks of `prefix`. A block is copied when one of the two writes to it."""
        self.rollback(0)
        self.pool.add_ref(prefix._table)
        self._table += prefix._table
        self._layout = None
        self._length = prefix._length

    def extend(self, count: int) -> Sequence[int]:
        """Allocates slots for so many more tokens; returns the blocks of the whole sequence."""
        self._reserve(self._length + count)
        self._length += count
        return self._table

    def append(self, tokens: Sequence[int], pad_to: int = 0) -> Inputs:
        past, count = self._length, len(tokens)
        self.extend(count)
        if count <= MAX_DECODE_TOKENS:
            padding = max(0, max(pad_to, self._min_tokens) - count)
        else:
            padding = -count % _PREFILL_MULTIPLE
        if self._layout != (padding, count):
            self._layout = padding, count
            for name, value in self._lay_out(padding, count).items():
                # The same array if possible: binding another one is slow.
                if name not in self._inputs or self._inputs[name].shape != value.shape:
                    self._inputs[name] = value
                self._inputs[name][...] = value
        inputs = self._inputs
        inputs["input_ids"][padding:] = tokens
        sequences = count if count <= self._max_split else 1
        inputs["position_ids"][padding:] = np.arange(past, self._length)
        begins = inputs["position_ids"][padding : padding + sequences]
        inputs["past_lens"][-sequences:] = begins - self._forgotten
        inputs["max_context_len"][...] = max(self._length - self._forgotten, padding)
        return inputs

    def rollback(self, length: int) -> None:
        if not 0 <= length <= self._length:
            raise ValueError(f"cannot roll {self._length} tokens back to {length}")
        self._length = length
        while len(self._table) * BLOCK_SIZE - (length - self._forgotten) >= BLOCK_SIZE:
            self.pool.free([self._table.pop()])
            self._layout = None

    def full_blocks(self) -> Iterator[NDArray[Any]]:
        """The memory of its full blocks, those of keys and of values in every layer."""
        for block in self._table[: (self._length - self._forgotten) // BLOCK_SIZE]:
            yield from self.pool.contents(block)

    def _lay_out(self, padding: int, count: int) -> Inputs:
        """The inputs that map tokens to sequences and to blocks. Padding comes first."""
        if count <= self._max_split:
            paddings, parts, begins = padding, count, [*range(padding + count + 1)]
        else:
            paddings, parts = min(padding, 1), 1
            begins = [*[0] * paddings, padding, padding + count]
        used = len(self._table)
        blocks = np.full((paddings + parts) * used, self.pool.padding_block, np.int32)
        blocks[paddings : paddings + parts * used] = self._table * parts
        block_begins = [*range(paddings), *(paddings + part * used for part in range(parts + 1))]
        return {
            "input_ids": np.zeros(padding + count, np.int64),
            "position_ids": np.zeros(padding + count, np.int64),
            "past_lens": np.zeros(paddings + parts, np.int32),
            "subsequence_begins": np.array(begins, np.int32),
            "block_indices": blocks,  # as many for every pass of a size; the end may be unused
            "block_indices_begins": np.array(block_begins, np.int32),
            "max_context_len": np.zeros((), np.int32),
        }

    def _reserve(self, length: int) -> None:
        """Makes the blocks of tokens up to `length` writable, allocates missing ones, and binds the
        tensors. The sequence stays as it is if there is no memory for a block.
        """
        try:
            written = (self._length - self._forgotten) // BLOCK_SIZE
            for place in range(written, len(self._table)):
                if (block := self.pool.writable(self._table[place])) != self._table[place]:
                    self._table[place], self._layout = block, None
            while len(self._table) * BLOCK_SIZE < length - self._forgotten:
                self._table.append(self.pool.allocate())
                self._layout = None
        except UserError:
            self.rollback(self._length)
            raise
        if self._bound is not self.pool.tensors:
            self._bound = self.pool.tensors
            for name, tensor in self._bound.items():
                self._request.set_tensor(name, tensor)


class PagedCaches:
    """Makes the caches of a model's sequences, whose blocks are in one pool.

    Args:
        new_cache: returns a cache, given the arguments of a `PagedKVCache`.
    """

    def __init__(
        self,
        setup: CacheSetup,
        new_cache: Callable[[ov.InferRequest, BlockPool, bool], PagedKVCache] = PagedKVCache,
    ) -> None:
        self.pool = BlockPool(setup)
        self._new_cache, self._lossless = new_cache, setup.lossless

    def __call__(self, request: ov.InferRequest) -> PagedKVCache:
        return self._new_cache(request, self.pool, self._lossless)


PAGED = CachePolicy(
    name="paged",
    summary="rollback at no cost",
    about=f"in blocks of {BLOCK_SIZE} tokens, which a block table maps to memory. A rollback only "
    "shortens the sequence: nothing is copied, and empty blocks are freed.",
    caches=PagedCaches,
    prepare=prepare_paged,
    token_axis=0,
    precision="f16",
    lossless_properties={},  # see `PagedKVCache`
    prefill_chunk=_PREFILL_CHUNK,
    prefill_multiple=_PREFILL_MULTIPLE,
    block_size=BLOCK_SIZE,
    limitable=True,
)
