"""The hybrid copies where that pays, and learns from the rounds."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.decoding.decoders import Speculative
from pipeline.decoding.draft_length import Fixed
from pipeline.decoding.drafters.hybrid import HybridDrafter
from pipeline.decoding.drafters.lookup import PromptLookupDrafter
from pipeline.decoding.drafters.model import ModelDrafter
from pipeline.decoding.economics import Costs
from pipeline.decoding.events import Step
from pipeline.decoding.sampling import SamplingParams
from pipeline.decoding.verification import Draft
from tests.fakes import FakeLM, verified

GREEDY, SAMPLED = SamplingParams(), SamplingParams(1.0)
RNG = np.random.default_rng(0)


def hybrid(target, ends=frozenset(), draft_s=0.2, lookup=None):
    draft = FakeLM(target.vocab_size, 9, like=target, likeness=0.5)
    model = ModelDrafter(draft, target.vocab_size, ends)
    costs = Costs(draft_s, (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8))
    return HybridDrafter(PromptLookupDrafter(ends) if lookup is None else lookup, model, costs)


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
    drafter = HybridDrafter(PromptLookupDrafter(frozenset()), model, Costs(0.2, (1.0,) * 9))
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


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    k=st.integers(1, 8),
    prompt=st.lists(st.integers(0, 3), min_size=1, max_size=20),
)
def test_the_text_is_looked_up_once_a_round(seed, k, prompt):
    class Counting(PromptLookupDrafter):
        count = 0

        def look_up(self, tokens, max_tokens):
            self.count += 1
            return super().look_up(tokens, max_tokens)

    target, lookup = FakeLM(4, seed), Counting(frozenset())
    decoder = Speculative(target, hybrid(target, lookup=lookup), lambda: Fixed(k), frozenset())
    events = list(decoder.generate(prompt, GREEDY, 20))
    # The last round has no budget to draft if it is to emit one token.
    rounds = sum(isinstance(event, Step) for event in events)
    assert rounds - 1 <= lookup.count <= rounds
