"""The window: bounded memory, positions within the cache, texts of any length, and no promises."""

import numpy as np
import pytest

from pipeline.errors import UserError
from pipeline.request import Request
from pipeline.runtime.kv_cache.policy import Rotary
from pipeline.runtime.kv_cache.registry import FALLBACK_POLICY
from pipeline.runtime.kv_cache.window import CAPACITY, SINK, rotated
from pipeline.runtime.model import OVModel, RuntimeOptions
from pipeline.trace.reader import parse_trace
from tests.caches import model
from tests.tiny import CONTEXT, tiny, tiny_folder
from ui.verdict import verdict

TOKENS = np.random.default_rng(0).integers(0, 999, 1200).tolist()


def test_a_text_that_fits_has_the_same_bits_as_in_a_whole_cache():
    got, expected = (model(kind).sequence() for kind in ("window", "paged"))
    for tokens in (TOKENS[:300], TOKENS[300:305], TOKENS[305:306]):
        logits = [each.forward(tokens, 1).logits for each in (got, expected)]
        assert (logits[0] == logits[1]).all()
    assert got.kv_bytes == expected.kv_bytes


def test_memory_is_bounded_and_the_length_is_that_of_the_text():
    sequence = model("window").sequence()
    sequence.forward(TOKENS[:CAPACITY], 0)
    most = sequence.kv_bytes
    for at in range(CAPACITY, 1190, 5):
        sequence.forward(TOKENS[at : at + 5], 5)
        assert sequence.kv_bytes <= most
    assert len(sequence) == CAPACITY + 5 * len(range(CAPACITY, 1190, 5))
    sequence.rollback(0)
    assert sequence.kv_bytes == 0
    fresh = model("window").sequence()
    assert (sequence.forward(TOKENS[:9], 1).logits == fresh.forward(TOKENS[:9], 1).logits).all()


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


def test_an_answer_longer_than_the_context_goes_on_and_is_never_called_identical():
    asked = Request("Why?", max_new_tokens=CONTEXT + 50, kv_cache="window")
    trace = tiny().start(asked).finish()
    assert [len(lane.tokens) for lane in trace.lanes.values()] == [CONTEXT + 50] * 2
    whole = tiny().start(Request("Why?", max_new_tokens=CONTEXT + 50), "autoregressive").finish()
    assert len(whole.autoregressive.tokens) < CONTEXT
    assert trace.identical is None
    assert verdict(trace)["same"] == "Not exact."
    assert parse_trace(trace.to_json()) == trace


def test_the_shared_prefix_stays_as_it_is():
    before = tiny().start(Request("Why?", max_new_tokens=20)).finish().autoregressive.text
    for _ in range(2):
        asked = Request("Why?", max_new_tokens=20, kv_cache="window")
        assert tiny().start(asked).finish().autoregressive.text == before
        tiny().start(Request("Why?", max_new_tokens=700, kv_cache="window")).finish()


def test_quantised_keys_cannot_be_moved_so_the_exact_fallback_is_used():
    models = tiny().models("window", "u8")
    assert models.policy.name == FALLBACK_POLICY
    assert models.note.startswith("no window cache here (quantised keys cannot be moved)")


def test_off_by_default():
    assert Request("Why?").kv_cache != "window"
    with pytest.raises(UserError, match="window"):
        Request("Why?", kv_cache="windows")


def test_a_precision_of_the_user_is_kept():
    assert OVModel(tiny_folder() / "draft", RuntimeOptions("window", "f32")).kv_precision == "f32"
