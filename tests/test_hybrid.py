"""The hybrid copies where that pays, and learns from the rounds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.decoding.decoders import Speculative
from pipeline.decoding.draft_length import Auto, Fixed
from pipeline.decoding.drafters.hybrid import HybridDrafter
from pipeline.decoding.drafters.lookup import LookupDrafter
from pipeline.decoding.drafters.model import ModelDrafter
from pipeline.decoding.economics import AcceptanceStats, Costs
from pipeline.decoding.events import Step
from pipeline.decoding.ngrams import NGrams
from pipeline.decoding.sampling import SamplingParams
from pipeline.decoding.verification.tokens import Draft
from tests.fakes import FakeLM, verified

GREEDY, SAMPLED = SamplingParams(), SamplingParams(1.0)
RNG = np.random.default_rng(0)


COSTS = Costs(0.2, (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8))


def hybrid(target):
    draft = FakeLM(target.vocab_size, 9, like=target, likeness=0.5)
    model = ModelDrafter(draft, target.vocab_size, frozenset())
    return HybridDrafter(LookupDrafter(frozenset()), model, COSTS)


def test_it_copies_what_can_be_copied_and_drafts_the_rest():
    """A text that repeats itself, then one that never does."""
    drafter = hybrid(FakeLM(50, 1))
    cycle = [1, 2, 3, 4, 5] * 4
    assert drafter.propose(cycle, 4, GREEDY, RNG) == Draft((1, 2, 3, 4), None)
    drafter.rollback(0)
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


def test_it_stops_copying_what_is_never_accepted():
    """Copies are always offered and never right; what the model drafts always is."""
    drafter = hybrid(FakeLM(50, 1))
    text, by_model = [1, 2, 3] * 3, []
    for new in range(10, 22):
        draft = drafter.propose(text, 1, SAMPLED, RNG)
        by_model.append(draft.probs is not None)
        drafter.rollback(min(len(drafter), len(text) - 1))
        drafter.observe(verified(draft, accepted=len(draft) if by_model[-1] else 0))
        text = [*text, *(draft.tokens if by_model[-1] else [new]), 1, 2, 3]
    assert not by_model[0]
    assert all(by_model[-6:])


def test_it_learns_from_what_it_observes_and_not_from_the_text():
    """The text repeats its copies, as when they are right, but each is said to be rejected."""
    drafter = hybrid(FakeLM(50, 1))
    cycle = [1, 2, 3, 4, 5] * 8
    copied = []
    for end in range(20, 32):
        draft = drafter.propose(cycle[:end], 4, SAMPLED, RNG)
        copied.append(draft.deterministic)
        drafter.rollback(min(len(drafter), end - 1))
        drafter.observe(verified(draft, accepted=0 if copied[-1] else len(draft)))
    assert copied[0]
    assert not any(copied[-4:])


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
    rounds = sum(isinstance(event, Step) for event in events)
    assert rounds - 1 <= len(counted) <= rounds


def test_it_foresees_a_copy_and_nothing_else():
    drafter = hybrid(FakeLM(50, 1))
    cycle = [1, 2, 3, 4, 5] * 4
    assert drafter.forecast(cycle, 4) == [0.75] * 4
    assert drafter.propose(cycle, 4, GREEDY, RNG) == Draft((1, 2, 3, 4))
    drafter.rollback(0)
    assert drafter.forecast(list(range(10, 30)), 4) is None


@pytest.mark.parametrize("drafts", [0, 1])
def test_of_two_drafts_it_uses_the_one_that_its_measured_rates_favour(drafts):
    """One copy in four is accepted, and all or none of what the model drafts. The text always
    offers a short copy; before the first test nothing tells which of both is better.
    """
    drafter, text, copied = hybrid(FakeLM(50, 1)), [1, 2, 3] * 3, []
    for new in range(80):
        draft = drafter.propose(text, 1, SAMPLED, RNG)
        copied.append(draft.deterministic)
        drafter.rollback(min(len(drafter), len(text) - 1))
        accepted = sum(copied) % 4 == 0 if copied[-1] else drafts
        drafter.observe(verified(draft, accepted=int(accepted)))
        text = [*text, *(draft.tokens if accepted else [10 + new % 40]), 1, 2, 3]
    assert {True, False} <= {*copied}  # both were tried
    assert sum(copied[-40:]) == 0 if drafts else sum(copied[-40:]) > 30
