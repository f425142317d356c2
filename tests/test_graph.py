"""Hidden states beside the logits: of every token, for every cache; the logits stay the same."""

from functools import cache

import numpy as np
import pytest

from pipeline.errors import UserError
from pipeline.runtime.kv_cache.registry import DEFAULT_POLICY, POLICIES
from pipeline.runtime.model import OVModel, RuntimeOptions
from tests.tiny import WIDTH, tiny_folder

TOKENS = np.random.default_rng(0).integers(0, 999, 200).tolist()
# Tokens of a forward pass, and what it is padded to: a prompt of two chunks, then decoding.
PASSES = ((150, 0), *((size, 0) for size in range(1, 9)), (3, 9), (1, 4), (2, 0))


@cache
def model(hidden_layers, kv_cache=DEFAULT_POLICY):
    return OVModel(tiny_folder() / "target", RuntimeOptions(kv_cache), hidden_layers)


def outputs(model):
    sequence, read = model.sequence(), 0
    for size, pad_to in PASSES:
        yield sequence.forward(TOKENS[read : read + size], min(size, 9), pad_to)
        read += size


@pytest.mark.parametrize("kv_cache", POLICIES)
def test_hidden_states_leave_the_logits_as_they_are(kv_cache):
    both, neither = model((0, 2), kv_cache), model((), kv_cache)
    for (size, _), got, plain in zip(PASSES, outputs(both), outputs(neither), strict=True):
        assert (got.logits == plain.logits).all()
        assert got.hidden.shape == (size, 2 * WIDTH)
        assert got.hidden.dtype == np.float32
        assert plain.hidden is None


def test_layers_are_side_by_side_in_the_order_asked_for():
    for got, third in zip(outputs(model((2, 0))), outputs(model((2,))), strict=True):
        assert (got.hidden[:, :WIDTH] == third.hidden).all()
        assert not np.allclose(got.hidden[:, WIDTH:], third.hidden)


def test_hidden_states_have_the_same_bits_for_every_size_of_a_forward_pass():
    lm = model((2,))
    alone = lm.sequence()
    alone.forward(TOKENS[:30], 0)
    singles = np.concatenate([alone.forward([token], 1).hidden for token in TOKENS[30:66]])
    for size in (2, 4, 9):
        together = lm.sequence()
        together.forward(TOKENS[:30], 0)
        hidden = [together.forward(TOKENS[at : at + size], 1).hidden for at in range(30, 66, size)]
        assert (np.concatenate(hidden) == singles).all()


def test_a_prompt_without_logits_still_has_its_hidden_states():
    sequence = model((2,)).sequence()
    assert sequence.forward([], 0).hidden.shape == (0, WIDTH)
    logits, hidden = sequence.forward(TOKENS[:40], 0)
    assert logits.shape == (0, sequence.vocab_size)
    assert hidden.shape == (40, WIDTH)
    kept = hidden.copy()
    sequence.forward(TOKENS[40:80], 0)
    assert (hidden == kept).all()  # the caller's to keep
    assert sequence.forward([], 0).hidden.shape == (0, WIDTH)


def test_a_sequence_returns_the_hidden_states_of_a_shared_prefix_with_its_first():
    lm = OVModel(tiny_folder() / "target", hidden_layers=(2,))
    whole = lm.sequence().forward(TOKENS[:20], 0).hidden
    lm.share_prefix(TOKENS[:10])
    sequence = lm.sequence(prompt=TOKENS[:20])
    assert len(sequence) == 10
    hidden = np.concatenate([sequence.forward(TOKENS[at : at + 5], 0).hidden for at in (10, 15)])
    np.testing.assert_allclose(hidden, whole, rtol=0, atol=0.01 * np.ptp(whole))


@pytest.mark.parametrize("layer", [-1, 99])
def test_a_layer_that_a_model_does_not_have_is_one_line(layer):
    with pytest.raises(UserError, match=rf"^hidden layer: {layer} — choose from 0 to \d+\.$"):
        OVModel(tiny_folder() / "target", hidden_layers=(0, layer))
