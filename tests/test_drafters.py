"""A drafter proposes what it should, and whatever it proposes the text stays the target's."""

from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.decoding.costs import Costs
from pipeline.decoding.decoders import Autoregressive, Speculative
from pipeline.decoding.draft_length import Fixed
from pipeline.decoding.drafters import HybridDrafter, ModelDrafter, PromptLookupDrafter
from pipeline.decoding.events import Step
from pipeline.decoding.sampling import SamplingParams, probabilities
from pipeline.decoding.verification import Draft
from tests.chi_square import assert_follows
from tests.fakes import FakeLM

GREEDY, SAMPLED = SamplingParams(), SamplingParams(1.0)
RNG = np.random.default_rng(0)


def proposed(text, k=4, ends=frozenset(), **sizes):
    return PromptLookupDrafter(ends, **sizes).propose(text, k, GREEDY, RNG)


def tokens(events):
    return [token for event in events if isinstance(event, Step) for token in event.tokens]


def test_what_followed_before_is_proposed_and_is_certain():
    draft = proposed([1, 2, 3, 4, 5, 9, 1, 2], k=3)
    assert draft.tokens == (3, 4, 5)
    assert draft.probs is None


def test_the_longest_ending_wins_over_a_later_shorter_one():
    assert proposed([1, 2, 3, 7, 0, 2, 3, 8, 1, 2, 3], k=1).tokens == (7,)


def test_of_equal_endings_the_latest_wins():
    assert proposed([1, 2, 7, 1, 2, 8, 1, 2], k=1).tokens == (8,)


@pytest.mark.parametrize("text", [[5], [1, 2, 3], [1, 2, 3, 9, 9, 9, 2]])
def test_without_a_match_there_is_no_draft(text):
    assert proposed(text).tokens == ()


def test_nothing_is_proposed_after_an_end_token():
    assert proposed([1, 2, 3, 0, 4, 1, 2], ends=frozenset({0})).tokens == (3, 0)


@given(
    text=st.lists(st.integers(0, 2), min_size=2, max_size=40),
    k=st.integers(1, 8),
    detours=st.lists(
        st.tuples(st.integers(0, 40), st.lists(st.integers(0, 2), max_size=9)), max_size=6
    ),
)
def test_a_proposal_depends_on_the_text_only(text, k, detours):
    """Not on how it came in, nor on what was read and rolled back on the way."""
    drafter = PromptLookupDrafter(frozenset())
    for kept, detour in detours:
        drafter.propose(text[:kept] + detour, k, GREEDY, RNG)
        drafter.rollback(min(len(drafter), kept, len(text)))
    assert drafter.propose(text, k, GREEDY, RNG) == proposed(text, k)
    with pytest.raises(ValueError, match="cannot roll"):
        drafter.rollback(len(text) + 1)


def lookup(target, ends, **sizes):
    return PromptLookupDrafter(ends, **sizes)


def hybrid(target, ends, draft_s=0.2, **sizes):
    draft = FakeLM(target.vocab_size, 9, like=target, likeness=0.5)
    model = ModelDrafter(draft, target.vocab_size, ends)
    costs = Costs(draft_s, (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8))
    return HybridDrafter(PromptLookupDrafter(ends, **sizes), model, costs)


@pytest.mark.parametrize("make", [lookup, hybrid])
@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    k=st.integers(1, 8),
    ends=st.frozensets(st.integers(0, 3), max_size=1),
    prompt=st.lists(st.integers(0, 3), min_size=1, max_size=20),
)
def test_greedy_text_is_the_autoregressive_text(make, seed, k, ends, prompt):
    target = FakeLM(4, seed)
    slow = tokens(Autoregressive(target, ends).generate(prompt, GREEDY, 30))
    decoder = Speculative(target, make(target, ends), partial(Fixed, k), ends)
    assert tokens(decoder.generate(prompt, GREEDY, 30)) == slow
    assert tokens(decoder.generate(prompt, GREEDY, 30)) == slow  # nothing is left over


def test_the_hybrid_copies_what_can_be_copied_and_drafts_the_rest():
    """A text that repeats itself, then one that never does."""
    drafter = hybrid(FakeLM(50, 1), frozenset())
    cycle = [1, 2, 3, 4, 5] * 4
    assert drafter.propose(cycle, 4, GREEDY, RNG) == Draft((1, 2, 3, 4), None)
    drafter.rollback(0)
    fresh = drafter.propose(list(range(10, 30)), 4, SAMPLED, RNG)
    assert len(fresh) == 4
    assert fresh.probs is not None  # the model's, not copied


def test_the_hybrid_copies_from_a_preamble_that_its_model_has_read_before():
    text = [*range(20), 3, 4]
    model = ModelDrafter(FakeLM(50, 9), 50, frozenset())
    model.prefill(text[:5])
    drafter = HybridDrafter(PromptLookupDrafter(frozenset()), model, Costs(0.2, (1.0,) * 9))
    drafter.prefill(text[len(drafter) : -1])
    assert drafter.propose(text, 4, GREEDY, RNG) == Draft((5, 6, 7, 8), None)


def test_the_hybrid_stops_copying_what_never_passes():
    """Copies are always offered and never right; what the model drafts always is."""
    drafter = hybrid(FakeLM(50, 1), frozenset())
    text, by_model = [1, 2, 3] * 3, []
    for new in range(10, 22):
        draft = drafter.propose(text, 1, SAMPLED, RNG)
        by_model.append(draft.probs is not None)
        drafter.rollback(min(len(drafter), len(text) - 1))
        text = [*text, *(draft.tokens if by_model[-1] else [new]), 1, 2, 3]
    assert not by_model[0]
    assert all(by_model[-6:])


@pytest.mark.parametrize("make", [lookup, hybrid])
def test_sampled_text_follows_the_target(make):
    """The joint distribution of three tokens after a prompt that always offers a copy."""
    target = FakeLM(3, 5, sharpness=0.7)
    prompt = [1, 2, 0, 1, 1, 2, 2, 1, 2]
    counts: Counter[tuple[int, ...]] = Counter()
    accepted = 0
    for seed in range(6000):
        drafter = make(target, frozenset(), shortest=1)
        events = list(
            Speculative(target, drafter, partial(Fixed, 3), frozenset()).generate(
                prompt, SamplingParams(1.0, seed=seed), 3
            )
        )
        counts[tuple(tokens(events))] += 1
        accepted += sum(event.accepted for event in events if isinstance(event, Step))

    def after(text):
        return probabilities(np.array([target.next_logits(text)], np.float32), SAMPLED)[0]

    expected = {
        (a, b, c): pa * pb * pc
        for a, pa in enumerate(after(prompt))
        for b, pb in enumerate(after([*prompt, a]))
        for c, pc in enumerate(after([*prompt, a, b]))
    }
    assert accepted > 1000
    assert_follows(counts, expected)
