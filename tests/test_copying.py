"""Copying drafters: what is copied, from where, and when the hybrid lets a model draft."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.decoders import Autoregressive, Speculative
from pipeline.decoding.draft_length import Auto, Fixed
from pipeline.decoding.drafters.hybrid import HybridDrafter
from pipeline.decoding.drafters.lookup import LookupDrafter
from pipeline.decoding.drafters.model import ModelDrafter
from pipeline.decoding.economics import AcceptanceStats, Costs
from pipeline.decoding.events import Origin
from pipeline.decoding.ngrams import NGrams
from pipeline.decoding.sampling import SamplingParams
from pipeline.decoding.verification.tokens import Draft
from tests.fakes import FakeLM, steps_of, tokens_of, verified

GREEDY, SAMPLED = SamplingParams(), SamplingParams(1.0)
RNG = np.random.default_rng(0)


def proposed(text, k=4, ends=frozenset(), **sizes):
    return LookupDrafter(ends, **sizes).propose(text, k, GREEDY, RNG)


def test_what_followed_before_is_proposed_and_is_certain():
    draft = proposed([1, 2, 3, 4, 5, 9, 1, 2], k=3)
    assert draft.tokens == (3, 4, 5)
    assert draft.probs is None


@pytest.mark.parametrize(
    ("text", "copied"),
    [
        ([1, 2, 3, 7, 0, 2, 3, 8, 1, 2, 3], (7,)),  # the longest ending, before a later shorter one
        ([1, 2, 7, 1, 2, 8, 1, 2], (8,)),  # of equal endings the latest
        *(([5], ()), ([1, 2, 3], ()), ([1, 2, 3, 9, 9, 9, 2], ())),  # without a match nothing
    ],
)
def test_the_longest_and_then_the_latest_ending_is_copied_from(text, copied):
    assert proposed(text, k=1).tokens == copied


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


COSTS = Costs(0.2, (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8))


def hybrid(target):
    draft = FakeLM(target.vocab_size, 9, like=target, likeness=0.5)
    model = ModelDrafter(draft, target.vocab_size, frozenset())
    return HybridDrafter(LookupDrafter(frozenset()), model, COSTS)


def test_it_copies_what_can_be_copied_and_drafts_the_rest():
    """A text that repeats itself, then one that never does; it foresees copies alone."""
    drafter = hybrid(FakeLM(50, 1))
    cycle = [1, 2, 3, 4, 5] * 4
    assert drafter.forecast(cycle, 4) == [0.75] * 4
    assert drafter.propose(cycle, 4, GREEDY, RNG) == Draft((1, 2, 3, 4), None)
    drafter.rollback(0)
    assert drafter.forecast(list(range(10, 30)), 4) is None
    fresh = drafter.propose(list(range(10, 30)), 4, SAMPLED, RNG)
    assert len(fresh) == 4
    assert fresh.probs is not None  # the model's, not copied


def test_it_copies_from_a_shared_prefix_that_its_model_has_read_before():
    text = [*range(20), 3, 4]
    model = ModelDrafter(FakeLM(50, 9), 50, frozenset())
    model.prefill(text[:5])
    drafter = HybridDrafter(LookupDrafter(frozenset()), model, Costs(0.2, (1.0,) * 9))
    drafter.prefill(text[len(drafter) : -1])
    assert drafter.propose(text, 4, GREEDY, RNG) == Draft((5, 6, 7, 8), None)


@settings(max_examples=50)
@given(
    seed=st.integers(0, 10**6),
    k=st.integers(0, 8),
    prompt=st.lists(st.integers(0, 3), min_size=1, max_size=20),
)
def test_the_text_is_searched_once_a_round(seed, k, prompt):
    target, counted = FakeLM(4, seed), []
    drafter = hybrid(target)
    with pytest.MonkeyPatch.context() as patch:
        find = NGrams.find
        patch.setattr(NGrams, "find", lambda *asked: counted.append(1) or find(*asked))
        length = Fixed(k) if k else Auto(AcceptanceStats(COSTS))
        events = list(
            Speculative(target, drafter, lambda: length, frozenset()).generate(prompt, GREEDY, 20)
        )
    # The last round has no budget to draft if it is to emit one token.
    rounds = len(steps_of(events))
    assert rounds - 1 <= len(counted) <= rounds


@pytest.mark.parametrize("drafts", [0, 1])
def test_of_two_drafts_it_uses_the_one_that_its_measured_rates_favour(drafts):
    """One copy in four is accepted, and all or none of what the model drafts. The text always
    offers a short copy; before the first test nothing tells which of both is better.
    """
    drafter, text, copied = hybrid(FakeLM(50, 1)), [1, 2, 3] * 3, []
    for new in range(80):
        draft = drafter.propose(text, 1, SAMPLED, RNG)
        copied.append(draft.probs is None)
        drafter.rollback(min(len(drafter), len(text) - 1))
        accepted = sum(copied) % 4 == 0 if copied[-1] else drafts
        drafter.observe(verified(draft, accepted=int(accepted)))
        text = [*text, *(draft.tokens if accepted else [10 + new % 40]), 1, 2, 3]
    assert {True, False} <= {*copied}  # both were tried
    assert sum(copied[-40:]) == 0 if drafts else sum(copied[-40:]) > 30


PROMPT = list(range(20))


def memory_of(*texts, **limit):
    memory = AnswerMemory(**limit)
    for text in texts:
        memory.add(text)
    return memory


def follows(memory, text, count=4):
    return memory.find(text).following(count)


def test_what_followed_in_an_earlier_text_is_found():
    assert follows(memory_of([*PROMPT, 50, 51, 52]), PROMPT) == (50, 51, 52)
    assert follows(memory_of([*PROMPT, 50, 51, 52]), [*PROMPT, 50, 51], 9) == (52,)


def test_a_few_tokens_alike_are_not_found():
    """All prompts end alike."""
    assert follows(memory_of([*PROMPT, 50, 51]), [99, *PROMPT[-7:]]) == ()
    assert follows(memory_of([*PROMPT, 50, 51]), [99, *PROMPT[-8:]]) == (50, 51)


def test_a_longer_likeness_comes_before_a_later_one():
    older, newer = [*PROMPT, 50], [99, *PROMPT[-10:], 51]
    assert follows(memory_of(older, newer), PROMPT) == (50,)
    assert follows(memory_of(older, newer), [98, *PROMPT[-10:]]) == (51,)


def test_no_likeness_stands_in_two_texts():
    assert follows(memory_of(PROMPT[:10], PROMPT[10:]), PROMPT[2:18]) == (18, 19)
    assert follows(memory_of(PROMPT[:10], PROMPT[10:]), PROMPT[:14]) == ()


@given(
    texts=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), max_size=12),
    limit=st.integers(12, 40),
)
def test_the_oldest_texts_are_forgotten(texts, limit):
    """As many of the latest are kept as fit; one that comes again is the latest again."""
    memory = memory_of(*texts, limit=limit)
    latest = list(dict.fromkeys(tuple(text) for text in reversed(texts)))
    kept = 0
    for text in latest:
        if kept + len(text) > limit:
            break
        kept += len(text)
    assert len(memory) == kept


def ask(target, memory, params=GREEDY, length=None, budget=60):
    lookup = LookupDrafter(frozenset(), memory)
    decoder = Speculative(target, lookup, length or (lambda: Fixed(8)), frozenset())
    return steps_of(decoder.generate(PROMPT, params, budget))


@pytest.mark.parametrize("auto", [False, True])
def test_a_question_asked_again_is_answered_from_memory(auto):
    target, memory = FakeLM(50, 3, sharpness=4.0), AnswerMemory()
    costs = Costs(0.2, (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8), switch=0.5)
    length = (lambda: Auto(AcceptanceStats(costs))) if auto else None
    slow = tokens_of(Autoregressive(target, frozenset()).generate(PROMPT, GREEDY, 60))
    first = ask(target, memory, length=length)
    memory.add([*PROMPT, *tokens_of(first)])
    again = ask(target, memory, length=length)
    assert tokens_of(first) == tokens_of(again) == slow
    assert Origin.REMEMBERED not in {origin for step in first for origin in step.origins}
    assert len(again) <= 8
    assert {origin for step in again for origin in step.origins[:-1]} == {Origin.REMEMBERED}
