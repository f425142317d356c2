"""Every drafter of the registry: whatever it proposes, the text stays the target's."""

from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.decoders import Autoregressive, Speculative
from pipeline.decoding.draft_length import Auto, Fixed
from pipeline.decoding.drafters import DEFAULT_DRAFTER, DRAFTERS, DrafterSetup, find_drafter
from pipeline.decoding.drafters.lookup import LookupDrafter
from pipeline.decoding.economics import AcceptanceStats, Costs
from pipeline.decoding.events import Step
from pipeline.decoding.sampling import SamplingParams, probabilities
from pipeline.errors import UserError
from tests.chi_square import assert_follows
from tests.fakes import FakeBlock, FakeLM

GREEDY, SAMPLED = SamplingParams(), SamplingParams(1.0)
COSTS = Costs(0.05, (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8), 0.3, 0.1)


def drafter(name, target, ends=frozenset(), likeness=0.5):
    target.hidden = lambda token: [float(token)]
    draft = FakeLM(target.vocab_size, 9, like=target, likeness=likeness)
    memory = AnswerMemory()
    memory.add([0, 1, 2, 3] * 5)
    block = partial(FakeBlock, draft)
    parts = DrafterSetup(target.vocab_size, ends, lambda: draft, block, memory, lambda: COSTS)
    return DRAFTERS[name].build(parts)


def draft_lengths(name, k):
    return partial(Fixed, k) if k else partial(Auto, AcceptanceStats(DRAFTERS[name].costs(COSTS)))


def tokens(events):
    return [token for event in events if isinstance(event, Step) for token in event.tokens]


def test_each_is_registered_under_its_own_name_and_title():
    assert [spec.name for spec in DRAFTERS.values()] == list(DRAFTERS)
    assert len({spec.title for spec in DRAFTERS.values()}) == len(DRAFTERS)
    assert find_drafter(DEFAULT_DRAFTER) is DRAFTERS[DEFAULT_DRAFTER]


@pytest.mark.parametrize("name", ["nobody", "", None, ["model"], {}])
def test_a_name_that_is_not_registered_is_refused(name):
    with pytest.raises(UserError, match="choose one of model, block, lookup, hybrid, memory"):
        find_drafter(name)


@pytest.mark.parametrize("name", DRAFTERS)
def test_each_needs_only_what_it_declares(name):
    """A part that is not declared is never asked for."""
    spec = DRAFTERS[name]
    model = (lambda: FakeLM(4, 1)) if spec.draft_model else missing
    block = (lambda: FakeBlock(FakeLM(4, 1))) if spec.block_draft else None
    made = spec.build(DrafterSetup(4, frozenset(), model, block, AnswerMemory(), lambda: COSTS))
    target = FakeLM(4, 0)
    target.hidden = lambda token: [float(token)]
    decoder = Speculative(target, made, partial(Fixed, 3), frozenset())
    assert len(tokens(decoder.generate([1, 2], GREEDY, 9))) == 9


def test_a_block_has_one_price_and_a_copy_none():
    """In steps: of a token, and of a draft."""
    costs = {name: spec.costs(COSTS) for name, spec in DRAFTERS.items()}
    assert {name: (cost.draft, cost.block_draft) for name, cost in costs.items()} == {
        "model": (COSTS.draft, 0.0),
        "block": (0.0, COSTS.block_draft),
        "lookup": (0.0, 0.0),
        "hybrid": (0.0, COSTS.block_draft),
        "memory": (0.0, COSTS.block_draft),
    }
    without = DRAFTERS["hybrid"].costs(Costs(0.05, COSTS.verify))
    assert (without.draft, without.block_draft) == (0.05, 0.0)


def test_a_pair_without_a_block_draft_cannot_draft_blocks():
    parts = DrafterSetup(4, frozenset(), lambda: FakeLM(4, 1), None, AnswerMemory(), lambda: COSTS)
    with pytest.raises(UserError, match="no block draft; choose another drafter"):
        DRAFTERS["block"].build(parts)


@pytest.mark.parametrize("name", ["block", "hybrid"])
def test_a_block_draft_reads_what_each_token_was_predicted_from(name):
    """Its rows are the tokens after the first, each with the target's state of the one before."""
    target, draft = FakeLM(4, 3), FakeLM(4, 9)
    target.hidden = lambda token: [float(token)]
    block = FakeBlock(draft)
    parts = DrafterSetup(4, frozenset(), missing, lambda: block, AnswerMemory(), lambda: COSTS)
    made, seen = DRAFTERS[name].build(parts), []
    forward = block.forward

    def watched(tokens, hidden, length):
        logits = forward(tokens, hidden, length)
        seen.append(([*block.tokens], [*block.hidden]))
        return logits

    block.forward = watched
    prompt = [1, 2, 0, 3]
    events = Speculative(target, made, partial(Fixed, 4), frozenset()).generate(prompt, GREEDY, 30)
    text = [*prompt, *tokens(events)]
    assert len(seen) >= 4
    for rows, hidden in seen:
        assert rows == text[1 : 1 + len(rows)]
        assert hidden == [[float(token)] for token in text[: len(rows)]]


def missing():
    raise AssertionError("not declared")


@pytest.mark.parametrize("name", DRAFTERS)
@settings(max_examples=100)
@given(
    seed=st.integers(0, 10**6),
    k=st.integers(0, 8),
    ends=st.frozensets(st.integers(0, 3), max_size=1),
    prompt=st.lists(st.integers(0, 3), min_size=1, max_size=20),
)
def test_greedy_text_is_the_autoregressive_text(name, seed, k, ends, prompt):
    """For every K; 0 stands for the length that chooses itself."""
    target = FakeLM(4, seed)
    slow = tokens(Autoregressive(target, ends).generate(prompt, GREEDY, 30))
    made = drafter(name, target, ends)
    decoder = Speculative(target, made, draft_lengths(name, k), ends)
    assert tokens(decoder.generate(prompt, GREEDY, 30)) == slow
    assert tokens(decoder.generate(prompt, GREEDY, 30)) == slow  # nothing is left over


@pytest.mark.parametrize("k", [3, 0])
@pytest.mark.parametrize("name", DRAFTERS)
def test_sampled_text_follows_the_target(name, k, monkeypatch):
    """The joint distribution of three tokens after a prompt that always offers a copy. K = 0
    stands for the length that chooses itself, here by costs that no clock changes.
    """
    monkeypatch.setattr(AcceptanceStats, "update_draft_cost", lambda *_: None)
    shortest = partial(LookupDrafter, shortest=1)  # one token that stood before is enough
    for module in ("lookup", "hybrid"):
        monkeypatch.setattr(f"pipeline.decoding.drafters.{module}.LookupDrafter", shortest)
    target = FakeLM(3, 5, sharpness=0.7)
    prompt = [1, 2, 0, 1, 1, 2, 2, 1, 2]
    counts: Counter[tuple[int, ...]] = Counter()
    lengths, accepted = draft_lengths(name, k), 0
    for seed in range(6000):
        decoder = Speculative(target, drafter(name, target), lengths, frozenset())
        events = list(decoder.generate(prompt, SamplingParams(1.0, seed=seed), 3))
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
