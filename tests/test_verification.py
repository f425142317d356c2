"""What `verify` emits follows the target's distribution, whatever was drafted."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.decoding.events import Origin
from pipeline.decoding.sampling import Distributions, SamplingParams, probabilities, sample
from pipeline.decoding.verification.tokens import Draft, verify
from tests.chi_square import assert_follows

VOCAB = 5


def distribution(seed: int, concentration: float) -> np.ndarray:
    weights = np.random.default_rng(seed).dirichlet([concentration] * VOCAB) + 1e-12
    return weights.astype(np.float32)


def one_hot(token: int) -> np.ndarray:
    return np.eye(VOCAB, dtype=np.float32)[token]


def assert_tokens_follow(tokens: list[int], probs: np.ndarray) -> None:
    assert_follows(Counter(tokens), dict(enumerate(probs)))


@settings(max_examples=40, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from([0.1, 0.5, 2.0]), st.sampled_from([0.1, 1.0]))
def test_the_first_token_follows_the_target(seed, target_spread, draft_spread):
    target = np.stack([distribution(seed, target_spread), distribution(seed + 1, target_spread)])
    drafted_from = distribution(seed + 2, draft_spread)[None]
    rng = np.random.default_rng(seed)
    tokens = []
    for _ in range(4000):
        proposal = sample(drafted_from[0], rng)
        verdict = verify(target, drafted_from, [proposal], rng)
        tokens.append(proposal if verdict.accepted else verdict.token)
    assert_tokens_follow(tokens, target[0])


@settings(max_examples=20, derandomize=True)
@given(st.integers(0, 10**6), st.integers(0, VOCAB - 1))
def test_a_deterministic_draft_follows_the_target_too(seed, proposal):
    target = np.stack([distribution(seed, 0.5), distribution(seed + 1, 0.5)])
    rng = np.random.default_rng(seed)
    tokens = []
    for _ in range(4000):
        verdict = verify(target, None, [proposal], rng)
        tokens.append(proposal if verdict.accepted else verdict.token)
    assert_tokens_follow(tokens, target[0])


def test_accepting_is_as_likely_as_the_distributions_overlap():
    target, drafted = distribution(1, 1.0), distribution(2, 1.0)
    rng = np.random.default_rng(0)
    both = np.stack([target, target])
    accepted = sum(
        verify(both, drafted[None], [sample(drafted, rng)], rng).accepted for _ in range(20_000)
    )
    assert accepted / 20_000 == pytest.approx(np.minimum(target, drafted).sum(), abs=0.015)


def test_one_hot_rows_that_agree_are_all_accepted_and_draw_no_number():
    target = np.stack([one_hot(t) for t in (3, 1, 4, 2)])
    verdict = verify(target, target[:3], [3, 1, 4], np.random.default_rng(0))
    assert (verdict.accepted, verdict.token, verdict.origin) == (3, 2, Origin.BONUS)
    assert verdict.uniform == (None, None, None)


def test_the_first_disagreement_ends_the_round_with_the_targets_own_choice():
    target = np.stack([one_hot(t) for t in (3, 1, 4, 2)])
    draft = np.stack([one_hot(t) for t in (3, 0, 4)])
    verdict = verify(target, draft, [3, 0, 4], np.random.default_rng(0))
    assert (verdict.accepted, verdict.token, verdict.origin) == (1, 1, Origin.RESAMPLED)
    assert verdict.accept_prob == (1.0, 0.0)


def test_disjoint_supports_reject_the_first():
    target = np.array([[0.5, 0.5, 0, 0, 0]] * 2, np.float32)
    draft = np.array([[0, 0, 0.5, 0.5, 0]], np.float32)
    rng = np.random.default_rng(0)
    verdicts = [verify(target, draft, [2], rng) for _ in range(2000)]
    assert {v.accepted for v in verdicts} == {0}
    assert_tokens_follow([v.token for v in verdicts], target[0])


def test_nothing_drafted_is_the_target_alone():
    target = distribution(7, 1.0)[None]
    rng = np.random.default_rng(0)
    verdicts = [verify(target, None, [], rng) for _ in range(4000)]
    assert {v.origin for v in verdicts} == {Origin.TARGET}
    assert_tokens_follow([v.token for v in verdicts], target[0])


class Asked:
    """Distributions that note which rows were asked for."""

    def __init__(self, probs):
        self.probs, self.rows = probs, set()

    def __getitem__(self, row):
        self.rows.add(row)
        return self.probs[row]


def test_tokens_after_the_first_rejection_are_not_tested():
    draft = np.stack([one_hot(0), one_hot(1), one_hot(2)])
    rng = np.random.default_rng(3)
    for _ in range(50):
        half = Asked(np.full((4, VOCAB), 1 / VOCAB, np.float32))
        verdict = verify(half, draft, [0, 1, 2], rng)
        tested = min(verdict.accepted + 1, 3)
        assert all(u is not None for u in verdict.uniform[:tested])
        assert all(u is None for u in verdict.uniform[tested:])
        assert len(verdict.target_prob) == len(verdict.accept_prob) == tested
        assert half.rows == {*range(verdict.accepted + 1)}  # none after it


def test_distributions_are_those_of_all_rows_together():
    logits = np.random.default_rng(0).normal(size=(3, VOCAB)).astype(np.float32)
    params = SamplingParams(0.7, top_p=0.9)
    rows = Distributions(logits, params)
    assert np.array_equal([rows[i] for i in (2, 0, 1)], probabilities(logits, params)[[2, 0, 1]])


def test_a_sampled_draft_cannot_be_cut():
    """What is left out would have been chosen by what it was."""
    probs = np.full((3, VOCAB), 1 / VOCAB, np.float32)
    draft = Draft((1, 2, 3), probs)
    with pytest.raises(ValueError, match="cannot cut a sampled draft of 3 tokens to 2"):
        draft.first(2)
    assert draft.first(3) is draft


def test_the_first_tokens_of_a_deterministic_draft_are_one():
    assert Draft((1, 2, 3)).first(2) == Draft((1, 2))
    assert Draft((1, 2, 3)).first(0) == Draft()
