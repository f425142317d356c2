"""Pools of blocks: who has which, what is in them, how large they are, and the limit they share."""

from collections import Counter
from threading import Lock
from types import SimpleNamespace

import openvino as ov
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pipeline.errors import UserError
from pipeline.runtime.kv_cache.block_pool import BlockPool
from pipeline.runtime.kv_cache.memory import KVMemory, parse_bytes
from pipeline.runtime.kv_cache.policy import CacheSetup

KEPT = 32  # blocks of an idle pool
LIMIT = 100  # blocks


def port(name, kind):
    shape = ov.PartialShape([-1, 2, 32, 4])
    return SimpleNamespace(any_name=name, element_type=kind, partial_shape=shape)


PORTS = [port("key_cache.0", ov.Type.f16), port("value_cache.0", ov.Type.u4)]
BLOCK = 2 * 32 * 4 * (2 + 0.5)  # bytes


def pool_of(memory=None, lock=None):
    compiled = SimpleNamespace(inputs=[*PORTS, SimpleNamespace(any_name="input_ids")])
    return BlockPool(CacheSetup(compiled, lock or Lock(), True, memory or KVMemory()))


def rows(pool, block):
    """The memory of a block in each tensor."""
    return [t.data.reshape(t.shape[0], -1)[block] for t in pool.tensors.values()]


class PoolContract(RuleBasedStateMachine):
    """Sequences that have blocks, mark them, share them, write to them, and let them go."""

    def __init__(self):
        super().__init__()
        self.lock, self.memory = Lock(), KVMemory(int(LIMIT * BLOCK))
        self.pool = pool_of(self.memory, self.lock)
        self.sequences: list[dict[int, int]] = []  # of each sequence: the mark of each block
        self.marks = 0
        self.most, self.copies = 1, 0
        self.allocations = 1  # of the padding

    def in_use(self):
        return Counter(block for sequence in self.sequences for block in sequence)

    def mark(self, sequence, block):
        self.marks += 1
        for row in rows(self.pool, block):
            row[...] = self.marks % 200
        sequence[block] = self.marks % 200

    @rule(count=st.integers(1, 40))
    def begin(self, count):
        sequence: dict[int, int] = {}
        self.sequences.append(sequence)
        for _ in range(count):
            with self.lock:  # of a forward pass
                full = len(self.in_use()) + 1 == LIMIT
                if full:
                    with pytest.raises(UserError, match=r"^kv-memory: "):
                        self.pool.allocate()
                    return
                block = self.pool.allocate()
                assert block not in self.in_use()
                self.mark(sequence, block)
                self.allocations += 1
            self.most = max(self.most, len(self.in_use()) + 1)

    @precondition(lambda self: self.sequences)
    @rule(place=st.integers(0))
    def share(self, place):
        sequence = self.sequences[place % len(self.sequences)]
        self.pool.add_ref(sequence)
        self.sequences.append(dict(sequence))

    @precondition(lambda self: any(self.sequences))
    @rule(place=st.integers(0), which=st.integers(0))
    def write(self, place, which):
        sequences = [sequence for sequence in self.sequences if sequence]
        sequence = sequences[place % len(sequences)]
        block = [*sequence][which % len(sequence)]
        others = self.in_use()[block] > 1
        with self.lock:
            if others and len(self.in_use()) + 1 == LIMIT:
                return
            own = self.pool.writable(block)
            assert (own != block) == others
            self.copies += others
            self.allocations += others
            assert all((row == sequence[block]).all() for row in rows(self.pool, own))
            del sequence[block]
            self.mark(sequence, own)
        self.most = max(self.most, len(self.in_use()) + 1)

    @precondition(lambda self: self.sequences)
    @rule(place=st.integers(0), passing=st.booleans(), dropped=st.booleans())
    def end(self, place, passing, dropped):
        sequence = self.sequences.pop(place % len(self.sequences))
        tensors = self.pool.tensors
        if dropped:
            self.pool.abandon([*sequence])
        elif passing:
            with self.lock:
                self.pool.free(sequence)
            assert self.pool.tensors is tensors  # that the forward pass writes to
        else:
            self.pool.free(sequence)

    @rule()
    def trim(self):
        self.pool.trim()

    @invariant()
    def every_block_keeps_what_was_written_to_it(self):
        for sequence in self.sequences:
            for block, mark in sequence.items():
                assert all((row == mark).all() for row in rows(self.pool, block))

    @invariant()
    def its_use_is_what_the_sequences_have(self):
        use, held = self.pool.use, self.in_use()
        assert use.used == len(held) + 1  # and the padding
        assert use.shared == sum(count > 1 for count in held.values())
        assert use.high_water == self.most
        assert use.copied == self.copies
        assert self.pool.allocated == self.allocations
        assert use.pool_bytes == use.blocks * BLOCK == self.memory.held <= LIMIT * BLOCK
        assert use.used <= use.blocks


def test_a_pool_gives_each_its_own_blocks_and_keeps_them_through_growth_and_shrinking():
    run_state_machine_as_test(
        PoolContract,
        settings=settings(max_examples=60, stateful_step_count=30, derandomize=True),
    )


def test_a_pool_grows_by_need_and_shrinks_when_it_is_idle():
    pool = pool_of()
    sizes = [pool.use.blocks]
    blocks = []
    for _ in range(200):
        blocks.append(pool.allocate())
        sizes.append(pool.use.blocks)
    assert sorted({*sizes}) == [8, 16, 32, 64, 128, 256]
    assert pool.resized == 5
    assert all(size <= max(8, 2 * (place + 1)) for place, size in enumerate(sizes))
    pool.free(blocks)
    assert (pool.use.blocks, pool.resized) == (KEPT, 6)
    assert pool.use.high_water == 201
    pool.trim()
    assert pool.use.blocks == 8


def test_blocks_are_recycled_before_the_pool_grows():
    pool = pool_of()
    first = [pool.allocate() for _ in range(5)]
    assert pool.use.recycled == 0
    pool.free(first)
    assert sorted(pool.allocate() for _ in range(5)) == sorted(first)
    assert (pool.use.recycled, pool.use.blocks) == (5, 8)


def test_pools_share_a_limit_and_one_gives_way_to_another():
    memory = KVMemory(int(60 * BLOCK))
    one, other = pool_of(memory), pool_of(memory)
    held = [one.allocate() for _ in range(40)]
    one.free(held[20:])
    for _ in range(30):  # which needs what the first has free
        other.allocate()
    assert one.use.blocks <= 25
    assert memory.held <= memory.limit
    while memory.held + BLOCK <= memory.limit or other.use.used < other.use.blocks:
        other.allocate()
    line = r"^kv-memory: .* — the KV caches need more; .*--kv-memory"
    with pytest.raises(UserError, match=line):
        other.allocate()
    assert other.use.used == other.use.blocks
    other.free([other.use.blocks - 1])
    other.allocate()


def test_a_pool_that_is_gone_counts_no_more():
    memory = KVMemory()
    pool = pool_of(memory)
    assert memory.held == 8 * BLOCK
    del pool
    assert memory.held == 0


@pytest.mark.parametrize(
    ("text", "size"), [("200MB", 200_000_000), ("1.5 GB", 1_500_000_000), (" 2gb", 2_000_000_000)]
)
def test_a_size_is_a_number_with_a_unit(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MB", "200", "0MB", "-1GB", "nanMB", "infGB", "2 TB"])
def test_what_is_no_size_is_one_line(text):
    with pytest.raises(UserError, match=r"^kv-memory: .* — choose a size such as "):
        parse_bytes(text)
