"""What verification emits follows the target's distribution, whatever was drafted."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.decoding.events import Origin
from pipeline.decoding.sampling import Distributions, SamplingParams, probabilities, sample
from pipeline.decoding.verification.block import verify_block
from pipeline.decoding.verification.tokens import Verdict, verify
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


def forgetful(target_probs, draft_probs, draft_tokens, rng):
    """Keeps as much as block verification, and then resamples as token by token."""
    verdict = verify_block(target_probs, draft_probs, draft_tokens, rng)
    at = verdict.accepted
    if at == len(draft_tokens):
        return verdict
    token = sample(np.maximum(target_probs[at] - draft_probs[at], 0), rng)
    return Verdict(accepted=at, token=token, origin=verdict.origin)


def generous(target_probs, draft_probs, draft_tokens, rng):
    """Accepts up to a token as often as it should be kept, as if no more could be accepted."""
    ratios = [target_probs[i][t] / draft_probs[i, t] for i, t in enumerate(draft_tokens)]
    kept = np.minimum.accumulate(np.minimum(1, ratios))
    at = max((i for i, p in enumerate(kept, 1) if rng.random() < p), default=0)
    row = target_probs[at] if at == len(draft_tokens) else None
    if row is None:
        row = np.maximum(target_probs[at] - draft_probs[at], 0)
    return Verdict(accepted=at, token=sample(row, rng), origin=Origin.RESAMPLED)


def two_tokens(verifier, seed, spread):
    """The first two tokens of 20,000 drafts of two, and what is expected of them."""
    rng = np.random.default_rng(seed)
    # Row i is of the token after token i, the last row of the first token.
    target, draft = ((rng.dirichlet([spread] * 6, 7) + 1e-9).astype(np.float32) for _ in range(2))
    counts: Counter[tuple[int, ...]] = Counter()
    for _ in range(20_000):
        first = sample(draft[-1], rng)
        second = sample(draft[first], rng)
        rows = target[[-1, first, second]], draft[[-1, first]]
        verdict = verifier(*rows, [first, second], rng)
        tokens = [*[first, second][: verdict.accepted], verdict.token]
        tokens += [sample(target[tokens[-1]], rng)] if len(tokens) < 2 else []
        counts[tuple(tokens[:2])] += 1
    expected = {(i, j): float(target[-1, i] * target[i, j]) for i in range(6) for j in range(6)}
    return counts, expected


@pytest.mark.parametrize(("seed", "spread"), [(0, 0.5), (2, 2.0)])
def test_two_tokens_follow_the_target_where_wrong_rules_do_not(seed, spread):
    assert_follows(*two_tokens(verify_block, seed, spread))
    for wrong in (forgetful, generous):
        counts, expected = two_tokens(wrong, seed, spread)
        with pytest.raises(AssertionError):
            assert_follows(counts, expected)


def accepted(verifier, target, draft, tokens, runs, seed=0):
    """The mean of accepted tokens, of independent tokens with the same distributions."""
    rng = np.random.default_rng(seed)
    rows = np.stack([target] * (tokens + 1)), np.stack([draft] * tokens)
    drafts = rng.choice(len(draft), size=(runs, tokens), p=draft / draft.sum())
    return np.mean([verifier(*rows, [*map(int, d)], rng).accepted for d in drafts])


def test_more_is_accepted_than_token_by_token():
    """The example of the paper (section 2): 11/9 of two tokens instead of 10/9."""
    target, draft = np.array([1 / 3, 2 / 3], np.float32), np.array([2 / 3, 1 / 3], np.float32)
    by_token, by_block = (accepted(v, target, draft, 2, 20_000) for v in (verify, verify_block))
    assert by_token == pytest.approx(10 / 9, abs=0.03)
    assert by_block == pytest.approx(11 / 9, abs=0.03)


@settings(max_examples=30, derandomize=True)
@given(seed=st.integers(0, 10**6), spread=st.sampled_from([0.1, 0.5, 2.0]))
def test_no_fewer_are_accepted_whatever_the_models(seed, spread):
    """In the mean of 1,500 drafts of three tokens, within its error."""
    rng = np.random.default_rng(seed)
    target, draft = ((rng.dirichlet([spread] * 5) + 1e-9).astype(np.float32) for _ in range(2))
    by_token, by_block = (accepted(v, target, draft, 3, 1500, seed) for v in (verify, verify_block))
    assert by_block > by_token - 0.12  # four standard errors of 1,500 runs


def test_a_copied_draft_and_none_are_verified_as_ever():
    target = np.full((3, 4), 0.25, np.float32)
    for tokens in ([], [1, 2]):
        same = [
            v(target[: len(tokens) + 1], None, tokens, np.random.default_rng(3))
            for v in (verify, verify_block)
        ]
        assert same[0] == same[1]


def test_what_is_drawn_is_recorded():
    """From the last token down to the one that the draft is accepted up to."""
    rng = np.random.default_rng(0)
    target = np.stack([rng.dirichlet([1.0] * 5) for _ in range(5)]).astype(np.float32)
    draft = np.stack([rng.dirichlet([1.0] * 5) for _ in range(4)]).astype(np.float32)
    seen = set()
    for _ in range(300):
        tokens = [sample(row, rng) for row in draft]
        verdict = verify_block(target, draft, tokens, rng)
        drawn = [u is not None for u in verdict.uniform]
        assert drawn == [i >= verdict.accepted - 1 for i in range(4)]
        passed = [
            u is not None and u < p
            for u, p in zip(verdict.uniform, verdict.accept_prob, strict=True)
        ]
        assert sum(passed) == min(verdict.accepted, 1)
        seen.add(verdict.accepted)
    assert seen == {0, 1, 2, 3, 4}
