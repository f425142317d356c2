"""Caches that evict: bounded memory, what is kept and what goes, and no promises."""

from dataclasses import replace

import numpy as np
import pytest

from pipeline.request import Request
from pipeline.runtime.kv_cache.mass import RECENT
from pipeline.runtime.kv_cache.paged import BLOCK_SIZE
from pipeline.runtime.kv_cache.policy import Rotary
from pipeline.runtime.kv_cache.registry import FALLBACK_POLICY, POLICIES
from pipeline.runtime.kv_cache.window import CAPACITY, SINK, rotated
from pipeline.runtime.model import OVModel, RuntimeOptions
from pipeline.trace.reader import parse_trace
from tests.caches import model
from tests.tiny import CONTEXT, tiny, tiny_folder
from ui.verdict import verdict

TOKENS = np.random.default_rng(0).integers(0, 999, 1200).tolist()
HEADS_AND_LAYERS = 4 * 2  # of the tiny pair’s draft
EVICTING = [name for name, policy in POLICIES.items() if not policy.exact]


@pytest.mark.parametrize("kv_cache", EVICTING)
def test_a_text_that_fits_has_the_same_bits_as_in_a_whole_cache(kv_cache):
    got, expected = (model(kind).sequence() for kind in (kv_cache, "paged"))
    for tokens in (TOKENS[:300], TOKENS[300:305], TOKENS[305:306]):
        logits = [each.forward(tokens, 1).logits for each in (got, expected)]
        assert (logits[0] == logits[1]).all()
    assert got.kv_bytes == expected.kv_bytes


@pytest.mark.parametrize("kv_cache", EVICTING)
def test_memory_is_bounded_and_the_length_is_that_of_the_text(kv_cache):
    sequence = model(kv_cache).sequence()
    for at in range(0, CAPACITY, 128):
        sequence.forward(TOKENS[at : at + 128], 0)
    most = sequence.kv_bytes
    for at in range(CAPACITY, 1000, 5):
        sequence.forward(TOKENS[at : at + 5], 5)
        assert sequence.kv_bytes <= most
    assert len(sequence) == CAPACITY + 5 * len(range(CAPACITY, 1000, 5))
    sequence.rollback(0)
    assert sequence.kv_bytes == 0
    logits = [each.forward(TOKENS[:9], 1).logits for each in (sequence, model(kv_cache).sequence())]
    assert (logits[0] == logits[1]).all()


@pytest.mark.parametrize("kv_cache", EVICTING)
def test_only_what_is_unbounded_passes_the_context_and_neither_is_called_identical(kv_cache):
    asked = Request("Why?", max_new_tokens=CONTEXT + 50, kv_cache=kv_cache)
    trace = tiny().start(asked).finish()
    for lane in trace.lanes.values():
        assert len(lane.tokens) > CAPACITY
        assert (len(lane.tokens) == CONTEXT + 50) == POLICIES[kv_cache].unbounded
    assert trace.pair["exact"] is False
    assert trace.forgets
    assert trace.identical is None
    assert verdict(trace)["same"] == "Not exact."
    assert parse_trace(trace.to_json()) == trace


@pytest.mark.parametrize("kv_cache", EVICTING)
def test_the_shared_prefix_stays_as_it_is(kv_cache):
    short, long = (Request("Why?", max_new_tokens=n, kv_cache=kv_cache) for n in (20, 700))
    before = tiny().start(replace(short, kv_cache="paged")).finish().autoregressive.text
    for _ in range(2):
        assert tiny().start(short).finish().autoregressive.text == before
        tiny().start(long).finish()


def read(*sizes):
    """A sequence that has read so many tokens in each pass."""
    sequence, at = model("mass").sequence(), 0
    for size in sizes:
        sequence.forward(TOKENS[at : at + size], 1)
        at += size
    return sequence


def masses(sequence):
    """The mass of each block, that of the last pass included."""
    sequence.rollback(len(sequence))
    return np.array(sequence.cache._mass)


@pytest.mark.parametrize("sizes", [(300,), (96, 96, 108), (290, 5, 1, 4), (296, 1, 3)])
def test_each_token_gives_a_mass_of_one_for_each_head_and_layer_however_it_was_read(sizes):
    """Padding gives none, and attends to nothing that counts."""
    got = masses(read(*sizes))
    assert len(got) == -(-300 // BLOCK_SIZE)
    np.testing.assert_allclose(got.sum(), 300 * HEADS_AND_LAYERS, rtol=1e-4)
    np.testing.assert_allclose(got, masses(read(300)), rtol=0.02, atol=0.1)


def test_the_masses_of_a_sequence_are_its_own():
    expected, one, other = masses(read(200, 5)), read(200), read(90)
    one.forward(TOKENS[200:205], 1)
    other.forward(TOKENS[500:600], 1)
    assert (masses(one) == expected).all()


@pytest.mark.parametrize("least", [0, 3, 7])
def test_the_block_with_the_least_mass_goes_and_never_a_recent_one(least):
    sequence = read(128, 128, 128, 128)
    before = [*sequence.cache._table]
    mass = np.full(len(before), 5.0)
    mass[least] = 4
    mass[-RECENT // BLOCK_SIZE :] = 0
    masses(sequence)
    sequence.cache._mass[:] = mass
    sequence.forward(TOKENS[CAPACITY : CAPACITY + 5], 1)
    del before[least]
    assert sequence.cache._table[:-1] == before
    assert len(sequence) == CAPACITY + 5


def test_what_was_evicted_is_not_attended_to():
    """Whatever keys and values the block with the least mass has, logits are the same."""
    logits = []
    for scale in (1, -1):
        sequence = read(128, 128, 128, 128)
        masses(sequence)
        sequence.cache._mass[:] = [1, 0, *[1] * 14]
        for contents in sequence.cache.pool.contents(sequence.cache._table[1]):
            contents[...] *= scale
        logits.append(sequence.forward(TOKENS[CAPACITY : CAPACITY + 5], 5).logits)
    assert (logits[0] == logits[1]).all()


def test_tokens_keep_the_positions_that_they_have_in_the_text():
    """Rotary keys of the first layer depend on the token and its position alone."""
    evicted, whole = read(*[128] * 7), model("paged").sequence()
    whole.forward(TOKENS[: 7 * 128], 0)
    assert evicted.cache._forgotten == 7 * 128 - CAPACITY
    got, expected = (
        [each.cache.pool.keys(block)[0].copy() for block in each.cache._table]
        for each in (evicted, whole)
    )
    assert all(any((keys == other).all() for other in expected) for keys in got)


def test_a_draft_is_rolled_back_after_an_eviction_and_what_is_gone_does_not_come_back():
    sequence = read(*[128] * 7)
    sequence.forward(TOKENS[896:905], 9)
    sequence.rollback(897)
    without = read(*[128] * 7, 1)
    logits = [each.forward(TOKENS[897:900], 3).logits for each in (sequence, without)]
    assert (logits[0] == logits[1]).all()
    assert masses(sequence).sum() > masses(without).sum()  # rejected tokens attended too
    with pytest.raises(ValueError, match=r"cannot roll back to 600: tokens before 64\d are gone"):
        sequence.rollback(600)
    with pytest.raises(ValueError, match="cannot roll"):
        sequence.rollback(901)
    assert len(sequence) == 900


def test_a_shared_prefix_comes_with_its_masses_and_with_what_it_has_lost():
    prefix, sequence = read(*[128] * 5), model("mass").sequence()
    sequence.cache.start_from(prefix.cache)
    logits = [each.forward(TOKENS[640:645], 5).logits for each in (sequence, prefix)]
    assert (logits[0] == logits[1]).all()
    assert (masses(sequence) == masses(prefix)).all()


def test_quantised_keys_are_evicted_too():
    sequence = OVModel(tiny_folder() / "draft", RuntimeOptions("mass", "u8")).sequence()
    for at in range(0, 900, 9):
        logits = sequence.forward(TOKENS[at : at + 9], 1).logits
    assert np.isfinite(logits).all()
    assert len(sequence.cache._table) * BLOCK_SIZE <= CAPACITY
    assert len(sequence) == 900


# --- the window


def test_it_attends_to_the_first_block_and_to_the_last_tokens_only():
    """What was forgotten has left no trace but in the tokens that attended to it."""
    one, other = model("window").sequence(), model("window").sequence()
    middle = TOKENS[SINK : SINK + 64]
    for sequence, tokens in ((one, middle), (other, middle[::-1])):
        sequence.forward([*TOKENS[:SINK], *tokens], 0)
    before = [each.forward(TOKENS[200:201], 1).logits for each in (one, other)]
    assert not np.allclose(*before, atol=1e-3)
    gaps = []
    for at in range(300, 1100, 100):
        logits = [each.forward(TOKENS[at : at + 100], 1).logits for each in (one, other)]
        gaps.append(np.abs(logits[0] - logits[1]).max())
    assert gaps[-1] < 0.05 * np.abs(before[0] - before[1]).max()


def sink_keys(sequence):
    """The keys of the sequence's first block, in each layer."""
    return [keys.astype(np.float32) for keys in sequence.cache.pool.keys(sequence.cache._table[0])]


def test_the_first_block_is_moved_as_if_it_had_been_read_so_much_later():
    """Its keys are those of the same tokens after as many forgotten ones: rotary keys of the first
    layer depend on the token and its position alone.
    """
    moved = model("window").sequence()
    for at in range(0, CAPACITY + 160, 8):
        moved.forward(TOKENS[at : at + 8], 0)
    forgotten = moved.cache._forgotten
    assert forgotten == 5 * SINK
    later = model("paged").sequence()
    later.forward([*TOKENS[:forgotten], *TOKENS[:SINK]], 0)
    block = later.cache._table[forgotten // SINK]
    expected = later.cache.pool.keys(block)[0].astype(np.float32)
    np.testing.assert_allclose(sink_keys(moved)[0], expected, atol=0.01 * np.ptp(expected))
    unmoved = model("paged").sequence()
    unmoved.forward(TOKENS[:SINK], 0)
    first = unmoved.cache.pool.keys(unmoved.cache._table[0])[0].astype(np.float32)
    assert np.abs(first - expected).max() > 0.1 * np.ptp(expected)


def test_keys_that_are_moved_twice_are_moved_by_the_sum():
    keys = np.random.default_rng(1).normal(size=(2, 5, 16)).astype(np.float32)
    rotary = Rotary(10_000.0, 0.5)
    twice = rotated(rotated(keys, 30, rotary), 70, rotary)
    np.testing.assert_allclose(twice, rotated(keys, 100, rotary), atol=1e-5)
    assert (twice[..., 8:] == keys[..., 8:]).all()  # of which no share is rotated
    assert (rotated(keys, 0, rotary) == keys).all()


def test_what_is_forgotten_does_not_come_back():
    sequence = model("window").sequence()
    sequence.forward(TOKENS[:900], 0)
    with pytest.raises(ValueError, match="are forgotten"):
        sequence.rollback(100)
    with pytest.raises(ValueError, match="cannot roll"):
        sequence.rollback(901)
    sequence.rollback(895)
    assert len(sequence) == 895


def test_quantised_keys_cannot_be_moved_so_the_exact_fallback_is_used():
    models = tiny().models("window", "u8")
    assert models.policy.name == FALLBACK_POLICY
    reason = "quantised keys cannot be moved"
    assert models.note == f"no window cache here ({reason}): the {FALLBACK_POLICY} one is used"
