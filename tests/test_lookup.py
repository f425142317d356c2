"""Prompt lookup: what is copied, and from where."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.decoding.drafters.lookup import PromptLookupDrafter
from pipeline.decoding.sampling import SamplingParams

GREEDY = SamplingParams()
RNG = np.random.default_rng(0)


def proposed(text, k=4, ends=frozenset(), **sizes):
    return PromptLookupDrafter(ends, **sizes).propose(text, k, GREEDY, RNG)


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


def test_as_much_is_copied_as_is_asked_for():
    """Asked after each token, with the share of the longest n-gram that was found."""
    asked = []

    def should_continue(confidence):
        asked.append(confidence)
        return len(asked) < 2

    drafter = PromptLookupDrafter(frozenset())
    draft = drafter.propose([1, 2, 3, 4, 5, 9, 1, 2], 4, GREEDY, RNG, should_continue)
    assert draft.tokens == (3, 4)
    assert asked == [0.5, 0.5]
