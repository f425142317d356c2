"""Block verification: the text follows the target, and no fewer drafts are accepted."""

from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.decoding.decoders import Autoregressive, Speculative
from pipeline.decoding.draft_length import Fixed
from pipeline.decoding.drafters.model import ModelDrafter
from pipeline.decoding.events import Origin, Step
from pipeline.decoding.sampling import SamplingParams, probabilities, sample
from pipeline.decoding.verification.block import verify_block
from pipeline.decoding.verification.tokens import Verdict, verify
from tests.chi_square import assert_follows
from tests.fakes import FakeLM

SAMPLED = SamplingParams(1.0)


def emitted(decoder, prompt, params, budget):
    events = decoder.generate(prompt, params, budget)
    return [token for event in events if isinstance(event, Step) for token in event.tokens]


def three_tokens(verifier, params, k):
    """The first three tokens of so many texts, and what is expected of them."""
    target = FakeLM(4, 5, sharpness=1.0)
    draft = FakeLM(4, 9, like=target, likeness=0.4, sharpness=1.0)
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(6000):
        drafter = ModelDrafter(draft, 4, frozenset())
        decoder = Speculative(target, drafter, partial(Fixed, k), frozenset(), verify=verifier)
        seeded = SamplingParams(params.temperature, params.top_k, params.top_p, seed)
        counts[tuple(emitted(decoder, [2], seeded, 4)[:3])] += 1

    def after(*tokens):
        row = np.array([target.next_logits([2, *tokens])], np.float32)
        return enumerate(map(float, probabilities(row, params)[0]))

    expected = {
        (a, b, c): pa * pb * pc for a, pa in after() for b, pb in after(a) for c, pc in after(a, b)
    }
    return counts, expected


@pytest.mark.parametrize("params", [SAMPLED, SamplingParams(0.8, top_k=3, top_p=0.9)])
@pytest.mark.parametrize("k", [2, 3])
def test_the_text_follows_the_target(k, params):
    """The joint distribution of three tokens, by chi-square over 6,000 runs."""
    assert_follows(*three_tokens(verify_block, params, k))


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


@pytest.mark.parametrize(("seed", "spread"), [(0, 0.5), (2, 2.0), (3, 0.5)])
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


@pytest.mark.parametrize("k", [1, 4])
def test_greedy_text_is_the_autoregressive_text(k):
    target = FakeLM(7, 1)
    drafter = ModelDrafter(FakeLM(7, 2, like=target, likeness=0.8), 7, frozenset())
    fast = Speculative(target, drafter, partial(Fixed, k), frozenset(), verify=verify_block)
    slow, greedy = Autoregressive(target, frozenset()), SamplingParams()
    assert emitted(fast, [1, 2], greedy, 40) == emitted(slow, [1, 2], greedy, 40)


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
