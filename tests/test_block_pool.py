"""Pools of blocks: who has which and what is in them; the limit that they share, in a run too."""

import json
from collections import Counter
from functools import cache
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

from pipeline.__main__ import main
from pipeline.dolly import Dolly
from pipeline.errors import UserError
from pipeline.request import Request
from pipeline.runtime.kv_cache.block_pool import BlockPool
from pipeline.runtime.kv_cache.memory import KVMemory, parse_bytes
from pipeline.runtime.kv_cache.policy import CacheSetup
from pipeline.trace.metrics import cache_use
from pipeline.trace.reader import parse_trace
from tests.tiny import tiny, tiny_folder
from ui.tabs.cache import picture

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


@pytest.mark.parametrize(
    ("text", "size"), [("200MB", 200_000_000), ("1.5 GB", 1_500_000_000), (" 2gb", 2_000_000_000)]
)
def test_a_size_is_a_number_with_a_unit(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MB", "200", "0MB", "-1GB", "nanMB", "infGB", "2 TB"])
def test_what_is_no_size_is_one_line(text):
    with pytest.raises(UserError, match=r"^kv-memory: .* — choose a size such as "):
        parse_bytes(text)


LIMIT_BYTES = 800_000  # the pools begin with 460,000, and a race of 900 tokens needs 2 million
LINE = "kv-memory: “800 kB” — the KV caches need more; "
LONG, SHORT = 900, 40  # new tokens


@cache
def limited() -> Dolly:
    return Dolly(tiny_folder(), kv_memory=LIMIT_BYTES)


def command(*arguments):
    return ["Why is the sky blue?", "--pair", str(tiny_folder()), *arguments]


def test_a_run_that_reaches_the_limit_keeps_its_answer_so_far_and_the_next_run_works():
    run = limited().start(Request("Why is the sky blue?", max_new_tokens=LONG))
    with pytest.raises(UserError, match=f"^{LINE}"):
        run.finish()
    trace, whole = run.trace(), tiny().start(Request("Why is the sky blue?", max_new_tokens=300))
    expected = whole.finish().autoregressive.text
    for lane in trace.lanes.values():
        assert lane.finish == "error"
        assert len(lane.tokens) > 20
        assert expected.startswith(lane.text[: len(expected)])
    after = limited().start(Request("Why is the sky blue?", max_new_tokens=SHORT)).finish()
    assert after.identical
    assert parse_trace(trace.to_json()) == trace
    steps = [step for lane in trace.lanes.values() for step in lane.steps]
    held = (step.target_pool.pool_bytes + step.draft_pool.pool_bytes for step in steps)
    assert max(held) <= LIMIT_BYTES


def test_a_run_that_is_started_during_another_works_after_it_where_both_would_not_fit():
    first = iter(limited().start(Request("Why is the sky blue?", max_new_tokens=SHORT)))
    next(first)
    other = Request("Why?", max_new_tokens=SHORT, kv_cache="window")
    second = limited().start(other)  # whose caches are pools of their own
    list(first)
    assert second.finish().finished


def test_the_terminal_keeps_the_answer_so_far(tmp_path, capsys):
    file = tmp_path / "trace.json"
    limits = ["--kv-memory", "0.8MB", "--max-new-tokens", str(LONG), "--json", str(file)]
    assert main(command(*limits)) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(LINE)
    assert len(printed.err.splitlines()) == 1
    trace = parse_trace(file.read_text())
    assert all(lane.finish == "error" and lane.text in printed.out for lane in trace.lanes.values())
    assert trace.pair["kv_memory"] == LIMIT_BYTES


@pytest.mark.parametrize(
    ("limit", "line"),
    [
        ("many", "kv-memory: “many” — choose a size such as 200MB or 1.5GB."),
        ("0.1MB", "kv-memory: “100 kB” — the KV caches need more; "),
    ],
)
def test_a_limit_that_cannot_be_kept_is_one_line_and_status_2(limit, line, capsys):
    assert main(command("--kv-memory", limit)) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(line)


def test_a_cache_without_blocks_cannot_be_limited():
    with pytest.raises(UserError, match=r"^KV cache: “stateful” — its memory has no limit; "):
        limited().start(Request("Why?", kv_cache="stateful"))
    assert limited().start(Request("Why?", max_new_tokens=8)).finish().identical


def test_a_step_reports_the_pools_of_both_models():
    trace = tiny().start(Request("Why?", max_new_tokens=200)).finish()
    for lane in trace.lanes.values():
        for model, use in cache_use(trace, lane).items():
            for tokens, pool in zip(use.blocks, use.pools, strict=True):
                assert tokens < pool.used <= pool.blocks  # the padding, and perhaps the other lane
                assert pool.used <= pool.high_water
            assert use.pools[-1].recycled >= use.pools[0].recycled
            assert any(pool.shared for pool in use.pools), model  # the prefix of all prompts
    assert parse_trace(trace.to_json()) == trace


def test_the_cache_tab_shows_the_pools_and_the_limit():
    trace = limited().start(Request("Why?", max_new_tokens=SHORT)).finish()
    shown = picture(trace)
    assert shown["limit"] == LIMIT_BYTES
    last = trace.speculative.steps[-1].target_pool
    assert shown["models"]["target"][-1]["pool"]["used"] == last.used
    assert picture(tiny().start(Request("Why?", max_new_tokens=2)).finish())["limit"] == 0


@pytest.mark.parametrize("field", ["used", "shared", "high_water"])
def test_a_pool_that_contradicts_itself_is_refused(field):
    trace = tiny().start(Request("Why?", max_new_tokens=2)).finish()
    record = json.loads(trace.to_json())
    pool = record["lanes"]["speculative"]["steps"][0]["target_pool"]
    pool[field] = 0 if field == "high_water" else 10**6
    with pytest.raises(UserError, match=r"^trace lanes.speculative.steps\[0\].target_pool"):
        parse_trace(json.dumps(record))


def test_what_the_blocks_in_use_hold_of_the_limit_is_reported_with_the_process():
    (use,) = [use for use in limited().memory_uses() if use.what == "the KV caches"]
    models = limited().models()
    pools = [model.pool for model in (models.target, models.draft, models.block_draft) if model]
    each = [pool.used * (pool.pool_bytes // pool.blocks) for pool in pools]
    assert (use.used, use.limit) == (sum(each), LIMIT_BYTES)
    assert not [use for use in tiny().memory_uses() if use.what == "the KV caches"]
