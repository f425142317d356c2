"""Eviction by attention mass: bounded memory, the least attended block goes, and no promises."""

import numpy as np
import pytest

from pipeline.errors import UserError
from pipeline.request import Request
from pipeline.runtime.kv_cache.mass import RECENT
from pipeline.runtime.kv_cache.paged import BLOCK_SIZE
from pipeline.runtime.kv_cache.window import CAPACITY
from pipeline.runtime.model import OVModel, RuntimeOptions
from pipeline.trace.reader import parse_trace
from tests.caches import model
from tests.tiny import CONTEXT, tiny, tiny_folder
from ui.verdict import verdict

TOKENS = np.random.default_rng(0).integers(0, 999, 1200).tolist()
HEADS_AND_LAYERS = 4 * 2  # of the tiny pair’s draft


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


def test_a_text_that_fits_has_the_same_bits_as_in_a_whole_cache():
    got, expected = (model(kind).sequence() for kind in ("mass", "paged"))
    for tokens in (TOKENS[:300], TOKENS[300:305], TOKENS[305:306]):
        logits = [each.forward(tokens, 1).logits for each in (got, expected)]
        assert (logits[0] == logits[1]).all()
    assert got.kv_bytes == expected.kv_bytes


def test_memory_is_bounded_and_the_length_is_that_of_the_text():
    sequence = read(128, 128, 128, 128)
    most = sequence.kv_bytes
    for at in range(CAPACITY, 1000, 5):
        sequence.forward(TOKENS[at : at + 5], 5)
        assert sequence.kv_bytes <= most
    assert len(sequence) == CAPACITY + 5 * len(range(CAPACITY, 1000, 5))
    sequence.rollback(0)
    assert sequence.kv_bytes == 0
    again, fresh = sequence.forward(TOKENS[:9], 1), read().forward(TOKENS[:9], 1)
    assert (again.logits == fresh.logits).all()
    assert (masses(sequence) == masses(read(9))).all()


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


def test_an_answer_ends_at_the_context_and_is_never_called_identical():
    asked = Request("Why?", max_new_tokens=CONTEXT + 50, kv_cache="mass")
    trace = tiny().start(asked).finish()
    assert all(CAPACITY < len(lane.tokens) < CONTEXT for lane in trace.lanes.values())
    assert trace.pair["exact"] is False
    assert trace.forgets
    assert trace.identical is None
    assert verdict(trace)["same"] == "Not exact."
    assert parse_trace(trace.to_json()) == trace


def test_the_shared_prefix_stays_as_it_is():
    before = tiny().start(Request("Why?", max_new_tokens=20)).finish().autoregressive.text
    for _ in range(2):
        asked = Request("Why?", max_new_tokens=20, kv_cache="mass")
        assert tiny().start(asked).finish().autoregressive.text == before
        tiny().start(Request("Why?", max_new_tokens=700, kv_cache="mass")).finish()


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


def test_off_by_default():
    assert Request("Why?").kv_cache != "mass"
    with pytest.raises(UserError, match="mass"):
        Request("Why?", kv_cache="masses")
