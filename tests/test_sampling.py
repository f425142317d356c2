"""Logits become the distribution that the parameters name."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pipeline.decoding.sampling import SamplingParams, probabilities, sample, sample_token

LOGITS = arrays(np.float32, (2, 9), elements=st.floats(-20, 20, width=32))


def reference(row: np.ndarray, params: SamplingParams) -> np.ndarray:
    """The textbook's way: sort everything."""
    probs = np.exp((row.astype(float) - row.max()) / params.temperature)
    order = np.argsort(-probs, kind="stable")
    if params.top_k:
        probs[order[params.top_k :]] = 0
    probs /= probs.sum()
    before = np.cumsum(probs[order]) - probs[order]
    probs[order[before >= params.top_p]] = 0
    return probs / probs.sum()


@given(LOGITS, st.floats(0.2, 3), st.integers(0, 9), st.floats(0.05, 0.95))
def test_probabilities_follow_the_textbook(logits, temperature, top_k, top_p):
    logits += np.arange(9, dtype=np.float32) * 1e-3  # no exact ties
    params = SamplingParams(temperature, top_k, top_p)
    for got, row in zip(probabilities(logits.copy(), params), logits, strict=True):
        want = reference(row, params)
        if (got > 0).tolist() != (want > 0).tolist():  # a sum within rounding of top_p
            edge = np.cumsum(np.sort(reference(row, SamplingParams(temperature, top_k)))[::-1])
            assert np.abs(edge - top_p).min() < 1e-5
        else:
            np.testing.assert_allclose(got, want, atol=1e-5)


def test_equals_at_the_edge_of_the_nucleus_do_not_widen_it():
    (probs,) = probabilities(np.zeros((1, 8), np.float32), SamplingParams(1.0, top_p=0.5))
    assert probs.tolist() == [0.25] * 4 + [0.0] * 4


@given(LOGITS)
def test_temperature_zero_is_one_hot_on_the_largest(logits):
    probs = probabilities(logits, SamplingParams(temperature=0))
    assert (probs.argmax(-1) == logits.argmax(-1)).all()
    assert (np.sort(probs, axis=-1)[:, -1] == 1).all()
    assert (probs.sum(-1) == 1).all()


def test_logits_are_left_as_they_were():
    logits = np.array([[1.0, 2.0, 3.0]], np.float32)
    probabilities(logits, SamplingParams(0.7, top_k=1, top_p=0.9))
    assert logits.tolist() == [[1.0, 2.0, 3.0]]


def test_a_tiny_temperature_does_not_overflow():
    for temperature in (1e-3, 1e-300):
        params = SamplingParams(temperature)
        probs = probabilities(np.array([[300.0, 299.0]], np.float32), params)
        assert probs.tolist() == [[1.0, 0.0]]


def test_drawing_from_a_one_hot_needs_no_random_number():
    class NoNumbers(np.random.Generator):
        def random(self, *_args, **_kwargs):
            pytest.fail("drew a number")

    assert sample(np.array([0, 1, 0], np.float32), NoNumbers(np.random.PCG64(0))) == 1


def test_a_token_without_probability_is_never_drawn():
    rng = np.random.default_rng(0)
    probs = np.array([0, 0.5, 0, 0.5, 0], np.float32)
    assert {sample(probs, rng) for _ in range(500)} == {1, 3}


@given(logits=st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=20), seed=st.integers(0))
@pytest.mark.parametrize("temperature", [0, 0.7])
def test_a_choice_is_a_draw_from_the_probabilities(logits, seed, temperature):
    row, params = np.array([logits], np.float32), SamplingParams(temperature, top_p=0.9)
    drawn = sample(probabilities(row, params)[0], np.random.default_rng(seed))
    assert sample_token(row, params, np.random.default_rng(seed)) == drawn
