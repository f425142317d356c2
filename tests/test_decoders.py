"""Speculation changes time, never the text or its distribution."""

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.decoding.decoders import Autoregressive, Speculative
from pipeline.decoding.draft_length import Fixed
from pipeline.decoding.drafters.model import ModelDrafter
from pipeline.decoding.events import Finish, FinishReason, Origin, Step
from pipeline.decoding.sampling import SamplingParams, probabilities
from pipeline.decoding.verification import VERIFIERS
from tests.chi_square import assert_follows
from tests.fakes import FakeLM, continuations, steps_of, tokens_of

GREEDY = SamplingParams()
SAMPLED = SamplingParams(temperature=0.8, top_p=0.9)


def models(seed=0, vocab=7, likeness=0.7, sharpness=1.5):
    target = FakeLM(vocab, seed, sharpness)
    return target, FakeLM(vocab, seed + 1, sharpness, like=target, likeness=likeness)


def speculative(target, draft, k, ends=frozenset(), **settings):
    drafter = ModelDrafter(draft, target.vocab_size, ends)
    return Speculative(target, drafter, partial(Fixed, k), ends, **settings)


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 5), params=st.sampled_from([GREEDY, SAMPLED]))
def test_the_likeliest_tokens_told_are_those_of_the_tested_distributions(seed, k, params):
    target, draft = models(seed)
    plain = list(speculative(target, draft, k).generate([1, 2], params, 20))
    told = list(speculative(target, draft, k, candidates=7).generate([1, 2], params, 20))
    assert tokens_of(told) == tokens_of(plain)
    for step in steps_of(told):
        assert len(step.target_top) == len(step.tokens)
        assert len(step.draft_top) == len(step.drafted)
        for place, token in enumerate(step.tokens[: step.accepted]):
            if params is GREEDY:
                assert step.target_top[place][0][0] == token
                assert step.draft_top[place][0][0] == token
            else:
                assert dict(step.target_top[place])[token] == pytest.approx(step.target_prob[place])
                assert dict(step.draft_top[place])[token] == pytest.approx(step.draft_prob[place])
        for row in (*step.target_top, *step.draft_top):
            chances = [chance for _, chance in row]
            assert chances == sorted(chances, reverse=True)
            assert sum(chances) == pytest.approx(1, abs=0.005)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    k=st.integers(1, 5),
    params=st.sampled_from([GREEDY, SAMPLED]),
    top=st.integers(0, 9),
)
def test_logprobs_are_the_targets_own_and_change_no_token(seed, k, params, top):
    """Of all tokens at temperature 1, whatever shapes the distribution that is sampled from."""
    target, draft = models(seed)
    asked = (
        Autoregressive(target, frozenset(), logprobs=top),
        speculative(target, draft, k, logprobs=top),
    )
    plain = Autoregressive(target, frozenset()), speculative(target, draft, k)
    for with_them, without in zip(asked, plain, strict=True):
        expected = list(without.generate([1, 2], params, 20))
        assert all(event.logprobs == () for event in expected if isinstance(event, Step))
        events, before = list(with_them.generate([1, 2], params, 20)), [1, 2]
        assert tokens_of(events) == tokens_of(expected)
        for step in steps_of(events):
            for token, found in zip(step.tokens, step.logprobs, strict=True):
                logits = target.next_logits(before).astype(np.float32)
                exact = np.log(probabilities(logits[None], SamplingParams(1.0))[0])
                assert found.value == pytest.approx(exact[token], abs=1e-5)
                likely = np.argsort(-exact, kind="stable")[:top]
                assert [each for each, _ in found.top] == likely.tolist()
                values = [value for _, value in found.top]
                assert values == pytest.approx(exact[likely].tolist(), abs=1e-5)
                before.append(token)


@settings(max_examples=100)
@given(
    seed=st.integers(0, 10**6),
    k=st.integers(1, 8),
    n=st.integers(1, 25),
    temperature=st.sampled_from([0.0, 0.7, 1.5]),
    ends=st.frozensets(st.integers(0, 6), max_size=2),
)
def test_budget_and_end_key_hold_inside_a_draft(seed, k, n, temperature, ends):
    target, draft = models(seed, likeness=0.9)
    events = list(
        speculative(target, draft, k, ends).generate([1, 2], SamplingParams(temperature), n)
    )
    made = tokens_of(events)
    assert len(made) <= n
    assert not ends & set(made[:-1])
    assert events[-1] == Finish(FinishReason.STOP if made[-1] in ends else FinishReason.LENGTH)
    assert made[-1] in ends or len(made) == n
    assert target.most_held <= 2 + n - 1  # never past the budget: the last token is never fed
    for step in steps_of(events):
        assert len(step.drafted) <= k
        assert len(step.tokens) == len(step.origins)
        assert step.tokens[: step.accepted] == step.drafted[: len(step.tokens)][: step.accepted]


EXACT = [name for name, verifier in VERIFIERS.items() if verifier.exact]
SHAPED = SamplingParams(0.8, top_k=3, top_p=0.9)


@pytest.mark.parametrize("verification", EXACT)
@pytest.mark.parametrize(
    ("k", "params", "token_ids"),
    [
        (3, SHAPED, None),
        (2, SamplingParams(1.0), (0, 1, 3)),  # a draft with a trimmed vocabulary
    ],
)
def test_sampled_output_follows_the_target(verification, k, params, token_ids):
    """The joint distribution of the first three tokens, by chi-square over 6,000 runs."""
    target, verify = FakeLM(4, 5, 1.0), VERIFIERS[verification].verify
    draft = FakeLM(4, 6, 1.0, like=target, likeness=0.4, token_ids=token_ids)
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(6000):
        decoder = speculative(target, draft, k, verify=verify)
        counts[tuple(tokens_of(decoder.generate([2], replace(params, seed=seed), 4))[:3])] += 1
    assert_follows(counts, continuations(target, [2], params, 3))


TRIMMED = (0, 2, 3, 5)


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 5), params=st.sampled_from([GREEDY, SAMPLED]))
def test_a_draft_with_a_trimmed_vocabulary_proposes_the_tokens_of_its_rows(seed, k, params):
    target = FakeLM(7, seed)
    draft = FakeLM(7, seed + 1, like=target, likeness=0.7, token_ids=TRIMMED)
    fast = list(speculative(target, draft, k, candidates=3).generate([1, 2], params, 20))
    steps = steps_of(fast)
    assert {token for step in steps for token in step.drafted} <= set(TRIMMED)
    for step in steps:
        assert {token for top in step.draft_top for token, _ in top} <= set(TRIMMED)
        for token, top in zip(step.drafted, step.draft_top, strict=True):
            assert params.temperature or top[0][0] == token
    if not params.temperature:
        slow = Autoregressive(target, frozenset()).generate([1, 2], GREEDY, 20)
        assert tokens_of(fast) == tokens_of(slow)


def test_a_draft_with_a_smaller_vocabulary_loses_nothing():
    target, draft = FakeLM(7, 3), FakeLM(7, 4, proposes=5)
    slow = tokens_of(Autoregressive(target, frozenset()).generate([1], GREEDY, 20))
    fast = tokens_of(speculative(target, draft, 4).generate([1], GREEDY, 20))
    assert fast == slow


def test_a_draft_with_a_larger_vocabulary_never_proposes_what_the_target_lacks():
    target, draft = FakeLM(5, 3), FakeLM(9, 4)
    events = list(speculative(target, draft, 4).generate([1], SamplingParams(2.0), 40))
    assert max(token for step in steps_of(events) for token in step.drafted) < 5


def test_after_a_full_acceptance_the_draft_catches_up_by_itself():
    target = FakeLM(7, 0)
    twin = FakeLM(7, 0)
    events = list(speculative(target, twin, 3).generate([1, 2], GREEDY, 12))
    steps = steps_of(events)
    assert [step.accepted for step in steps] == [3, 3, 3]
    assert [step.origins[-1] for step in steps] == [Origin.BONUS] * 3
    assert len(steps[0].tokens) == 4
    assert twin.widths == [1, 1, 1, 1, 2, 1, 1, 2, 1, 1]  # two at once after each full acceptance
    assert target.widths == [1, 4, 4, 4]


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    k=st.integers(1, 8),
    ends=st.frozensets(st.integers(0, 6), max_size=1),
    params=st.sampled_from([GREEDY, SAMPLED]),
)
def test_each_cache_loses_the_drafted_tokens_that_do_not_stand(seed, k, ends, params):
    target, draft = models(seed)
    prompt, target_len, draft_len = [1, 2, 3], 2, 2
    for step in speculative(target, draft, k, ends).generate(prompt, params, 20):
        if isinstance(step, Step):
            drafted, kept = len(step.drafted), len(step.tokens) - 1
            assert step.target_rolled_back == drafted - kept
            assert step.target_kv_len == target_len + 1 + drafted - step.target_rolled_back
            # A draft model reads all that it drafted, but for the last token.
            assert step.draft_rolled_back == max(0, drafted - 1 - kept)
            if drafted:
                read = target_len - draft_len + drafted
                assert step.draft_kv_len == draft_len + read - step.draft_rolled_back
            target_len, draft_len = step.target_kv_len, step.draft_kv_len


class Reader(ModelDrafter):
    """Notes the hidden states that it is handed, with the tokens that they belong to."""

    def __init__(self, *args):
        super().__init__(*args)
        self.text, self.hidden, self.steps = [], [], []

    def prefill(self, tokens, hidden=None):
        self.text += tokens
        self.hidden += [] if hidden is None else hidden.tolist()
        super().prefill(tokens, hidden)

    def observe(self, step, hidden=None):
        self.steps.append(step)
        self.hidden += [] if hidden is None else hidden.tolist()


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    k=st.integers(1, 8),
    ends=st.frozensets(st.integers(0, 6), max_size=1),
    prompt=st.lists(st.integers(0, 6), min_size=1, max_size=6),
    params=st.sampled_from([GREEDY, SAMPLED]),
)
def test_a_drafter_observes_each_round_with_the_hidden_states_of_what_stands(
    seed, k, ends, prompt, params
):
    """One for every token of the text but the newest, in order: each is what the next token was
    predicted from.
    """
    target, draft = models(seed)
    target.hidden = lambda token: [token, token**2]
    drafter = Reader(draft, target.vocab_size, ends)
    decoder = Speculative(target, drafter, partial(Fixed, k), ends)
    events = list(decoder.generate(prompt, params, 20))
    steps = steps_of(events)
    text = [*prompt, *tokens_of(events)]
    assert drafter.steps == steps
    assert drafter.hidden == [[token, token**2] for token in text[:-1]]


@pytest.mark.parametrize("closed_after", range(6))
def test_closing_at_any_point_leaves_the_pair_usable(closed_after):
    target, draft = models()
    decoder = speculative(target, draft, 3)
    whole = tokens_of(decoder.generate([1, 2], GREEDY, 10))
    started = decoder.generate([1, 2], GREEDY, 10)
    for _ in range(closed_after):
        next(started)
    started.close()
    assert (len(target), len(draft)) == (0, 0)
    assert tokens_of(decoder.generate([1, 2], GREEDY, 10)) == whole


def test_the_seed_decides_and_nothing_global_does():
    target, draft = models(sharpness=0.3)
    params = SamplingParams(1.0, seed=7)
    first = tokens_of(speculative(target, draft, 3).generate([1], params, 30))
    np.random.seed(1)
    again = tokens_of(speculative(target, draft, 3).generate([1], params, 30))
    other = tokens_of(speculative(target, draft, 3).generate([1], SamplingParams(1.0, seed=8), 30))
    assert first == again != other
