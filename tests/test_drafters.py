"""Every drafter of the registry and the lanes built with it: the text stays the target's."""

import threading
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.decoders import Autoregressive, Speculative
from pipeline.decoding.draft_length import Auto, Fixed
from pipeline.decoding.drafters import (
    DEFAULT_DRAFTER,
    DRAFTERS,
    DrafterSetup,
    drafters_with,
    find_drafter,
)
from pipeline.decoding.drafters.lookup import LookupDrafter
from pipeline.decoding.economics import AcceptanceStats, Costs
from pipeline.decoding.events import AUTOREGRESSIVE, SPECULATIVE, Step
from pipeline.decoding.lanes import Lanes
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


@pytest.mark.parametrize("name", ["nobody", "", None, ["model"], {}])
def test_a_name_that_is_not_registered_is_refused(name):
    with pytest.raises(UserError, match="choose one of model, block, lookup, hybrid, memory"):
        find_drafter(name)


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


@pytest.mark.parametrize("draft_model", [False, True])
@pytest.mark.parametrize("name", DRAFTERS)
def test_a_pair_drafts_with_what_it_has_and_says_what_it_lacks(name, draft_model):
    """Without any draft, that is what copies; a pair of the paper's has no block draft."""
    sources = Sources()
    whole = sources.lanes()
    lanes = replace(whole, block_draft=None, draft=whole.draft if draft_model else None)
    offered = drafters_with(draft_model, False)
    assert offered == (
        ("model", "lookup", "hybrid", "memory") if draft_model else ("lookup", "memory")
    )
    if name in offered:
        slow = tokens(lanes.autoregressive(PROMPT, GREEDY, BUDGET))
        assert tokens(lanes.speculative(PROMPT, GREEDY, BUDGET, name, 4)) == slow
    else:
        with pytest.raises(UserError, match=f"{name}.*; choose one of {', '.join(offered)}, or"):
            lanes.speculative(PROMPT, GREEDY, BUDGET, name, 4)


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


PROMPT, GREEDY, BUDGET = [1, 2, 3], SamplingParams(), 24


class Sources:
    """Makes fakes, and counts what it was asked for."""

    def __init__(self):
        self.made: list[tuple[str, tuple[int, ...]]] = []
        self.measured = 0

    def target(self, prompt):
        self.made.append(("target", tuple(prompt)))
        target = FakeLM(9, 0)
        target.hidden = lambda token: [float(token)]
        return target

    def draft(self, prompt):
        self.made.append(("draft", tuple(prompt)))
        return FakeLM(9, 1, like=FakeLM(9, 0), likeness=0.8)

    def block(self):
        self.made.append(("block", ()))
        return FakeBlock(FakeLM(9, 1, like=FakeLM(9, 0), likeness=0.8))

    def costs(self):
        self.measured += 1
        return Costs(0.1, (1.0,) * 9, block_draft=0.1)

    def lanes(self, **settings):
        return Lanes(
            target=self.target,
            draft=self.draft,
            block_draft=self.block,
            costs=self.costs,
            **settings,
        )


@pytest.mark.parametrize(
    ("mode", "names"),
    [
        ("race", [AUTOREGRESSIVE, SPECULATIVE]),
        ("sequential", [AUTOREGRESSIVE, SPECULATIVE]),
        ("autoregressive", [AUTOREGRESSIVE]),
        ("speculative", [SPECULATIVE]),
    ],
)
def test_a_mode_has_its_lanes_in_their_order(mode, names):
    lanes = Sources().lanes().of(mode, PROMPT, GREEDY, BUDGET, DEFAULT_DRAFTER, 4)
    assert list(lanes) == names


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_lane_asks_only_for_what_its_drafter_declares(drafter):
    sources, spec = Sources(), DRAFTERS[drafter]
    list(sources.lanes().speculative(PROMPT, GREEDY, BUDGET, drafter, 4))
    drafts = ["block"] if spec.block_draft else ["draft"] if spec.draft_model else []
    assert [model for model, _ in sources.made] == ["target", *drafts]
    assert all(prompt in ((), tuple(PROMPT)) for _, prompt in sources.made)
    assert bool(sources.measured) == spec.compares


def test_without_a_block_draft_the_hybrid_takes_the_draft_model():
    sources = Sources()
    lanes = Lanes(target=sources.target, draft=sources.draft, costs=sources.costs)
    list(lanes.speculative(PROMPT, GREEDY, BUDGET, "hybrid", 4))
    assert [model for model, _ in sources.made] == ["target", "draft"]


def test_an_autoregressive_lane_needs_a_target_alone():
    sources = Sources()
    assert len(tokens(Lanes(target=sources.target).autoregressive(PROMPT, GREEDY, 5))) == 5
    with pytest.raises(ValueError, match="not measured"):
        Lanes(target=sources.target, draft=sources.draft).speculative(
            PROMPT, GREEDY, 5, DEFAULT_DRAFTER, "auto"
        )


def test_auto_measures_the_costs_once_and_learns_of_the_drafter():
    sources = Sources()
    lanes = sources.lanes()
    list(lanes.speculative(PROMPT, GREEDY, BUDGET, DEFAULT_DRAFTER, "auto"))
    assert sources.measured == 1
    assert list(lanes.stats) == [DEFAULT_DRAFTER]


def test_what_is_learned_of_a_drafter_is_its_own_and_outlives_a_generation():
    sources, kept = Sources(), {}
    for drafter in DRAFTERS:
        list(sources.lanes(stats=kept).speculative(PROMPT, GREEDY, BUDGET, drafter, "auto"))
    assert list(kept) == list(DRAFTERS)
    assert kept["lookup"].costs.draft == 0
    before = dict(kept)
    list(sources.lanes(stats=kept).speculative(PROMPT, GREEDY, BUDGET, DEFAULT_DRAFTER, "auto"))
    assert kept == before


def test_two_runs_that_begin_at_once_share_what_is_learned_of_a_drafter(monkeypatch):
    both, used = threading.Barrier(2), []

    def costs():
        both.wait()  # neither has kept anything yet
        return Costs(0.1, (1.0,) * 9)

    monkeypatch.setattr("pipeline.decoding.lanes.Auto", lambda stats: used.append(stats))
    sources, kept = Sources(), {}

    def begin():
        lanes = Lanes(target=sources.target, draft=sources.draft, costs=costs, stats=kept)
        lanes._draft_length(DRAFTERS[DEFAULT_DRAFTER], "auto")()

    threads = [threading.Thread(target=begin) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [*map(id, used)] == [id(kept[DEFAULT_DRAFTER])] * 2
