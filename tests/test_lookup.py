"""Prompt lookup: what is copied, and from where."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.decoding.drafters.lookup import LookupDrafter
from pipeline.decoding.sampling import SamplingParams
from tests.fakes import verified

GREEDY = SamplingParams()
RNG = np.random.default_rng(0)


def proposed(text, k=4, ends=frozenset(), **sizes):
    return LookupDrafter(ends, **sizes).propose(text, k, GREEDY, RNG)


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
    drafter = LookupDrafter(frozenset())
    for kept, detour in detours:
        drafter.propose(text[:kept] + detour, k, GREEDY, RNG)
        drafter.rollback(min(len(drafter), kept, len(text)))
    assert drafter.propose(text, k, GREEDY, RNG) == proposed(text, k)
    with pytest.raises(ValueError, match="cannot roll"):
        drafter.rollback(len(text) + 1)


def test_a_copy_is_foreseen_as_likely_as_those_before_it_were():
    """Of matches of the same length; nothing is known of others."""
    drafter, text = LookupDrafter(frozenset()), [1, 2, 3, 4, 5, 9, 1, 2]
    assert drafter.forecast(text, 3) == [0.75] * 3
    draft = drafter.propose(text, 3, GREEDY, RNG)
    drafter.observe(verified(draft, accepted=0))
    assert drafter.forecast(text, 2) == [0.5] * 2
    text += [8, 5, 9, 1, 2]
    assert drafter.forecast(text, 2) == [0.75] * 2
    assert drafter.forecast([*text, 7], 2) == []
