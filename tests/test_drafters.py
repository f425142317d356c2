"""Every drafter of the registry and the lanes built with it: the text stays the target's."""

from collections import Counter
from dataclasses import replace
from functools import partial

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
from pipeline.decoding.events import AUTOREGRESSIVE, SPECULATIVE
from pipeline.decoding.lanes import Lanes
from pipeline.decoding.sampling import SamplingParams
from pipeline.decoding.verification import VERIFIERS
from pipeline.errors import UserError
from tests.chi_square import assert_follows
from tests.fakes import FakeBlock, FakeLM, continuations, steps_of, tokens_of

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
        slow = tokens_of(lanes.autoregressive(PROMPT, GREEDY, BUDGET))
        assert tokens_of(lanes.speculative(PROMPT, GREEDY, BUDGET, name, 4)) == slow
    else:
        with pytest.raises(UserError, match=f"{name}.*; choose one of {', '.join(offered)}, or"):
            lanes.speculative(PROMPT, GREEDY, BUDGET, name, 4)


@pytest.mark.parametrize("name", DRAFTERS)
@settings(max_examples=100)
@given(
    seed=st.integers(0, 10**6),
    k=st.integers(0, 8),
    ends=st.frozensets(st.integers(0, 3), max_size=1),
    budget=st.integers(1, 30),
    likeness=st.floats(0, 1),
    prompt=st.lists(st.integers(0, 3), min_size=1, max_size=20),
    verifier=st.sampled_from([*VERIFIERS.values()]),
)
def test_greedy_speculative_equals_autoregressive(
    name, seed, k, ends, budget, likeness, prompt, verifier
):
    """For every K; 0 stands for the length that chooses itself. With every verification: greedily,
    a lossy one accepts what an exact one does.
    """
    target = FakeLM(4, seed)
    slow = list(Autoregressive(target, ends).generate(prompt, GREEDY, budget))
    made, lengths = drafter(name, target, ends, likeness), draft_lengths(name, k)
    decoder = Speculative(target, made, lengths, ends, verify=verifier.verify)
    for _ in range(2):  # nothing is left over
        fast = list(decoder.generate(prompt, GREEDY, budget))
        assert tokens_of(fast) == tokens_of(slow)
        assert fast[-1] == slow[-1]


@pytest.mark.parametrize(("k", "verification"), [(3, "block"), (0, "token")])
@pytest.mark.parametrize("name", DRAFTERS)
def test_sampled_text_follows_the_target(name, k, verification, monkeypatch):
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
    lengths, verify, accepted = draft_lengths(name, k), VERIFIERS[verification].verify, 0
    for seed in range(6000):
        made = drafter(name, target)
        decoder = Speculative(target, made, lengths, frozenset(), verify=verify)
        events = list(decoder.generate(prompt, SamplingParams(1.0, seed=seed), 3))
        counts[tuple(tokens_of(events))] += 1
        accepted += sum(step.accepted for step in steps_of(events))
    assert accepted > 1000
    assert_follows(counts, continuations(target, prompt, SAMPLED, 3))


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


def test_an_autoregressive_lane_needs_a_target_alone():
    sources = Sources()
    assert len(tokens_of(Lanes(target=sources.target).autoregressive(PROMPT, GREEDY, 5))) == 5
    with pytest.raises(ValueError, match="not measured"):
        Lanes(target=sources.target, draft=sources.draft).speculative(
            PROMPT, GREEDY, 5, DEFAULT_DRAFTER, "auto"
        )


def test_what_is_learned_of_a_drafter_is_its_own_and_outlives_a_generation():
    sources, kept = Sources(), {}
    for drafter in DRAFTERS:
        list(sources.lanes(stats=kept).speculative(PROMPT, GREEDY, BUDGET, drafter, "auto"))
    assert list(kept) == list(DRAFTERS)
    assert sources.measured >= len(DRAFTERS)
    assert kept["lookup"].costs.draft == 0
    before = dict(kept)
    list(sources.lanes(stats=kept).speculative(PROMPT, GREEDY, BUDGET, DEFAULT_DRAFTER, "auto"))
    assert kept == before


def test_a_copy_leaves_the_cache_of_the_draft_as_it_is():
    lane = Sources().lanes().speculative([1, 2, 3, 4] * 8, GREEDY, BUDGET, "hybrid", 4)
    steps = steps_of(lane)
    copied = [at for at in range(1, len(steps)) if steps[at].drafted and not steps[at].draft_passes]
    assert copied
    for at in copied:
        assert steps[at].draft_kv_len == steps[at - 1].draft_kv_len


@pytest.mark.parametrize(("drafter", "of"), [("model", 0.1), ("block", 0.9), ("hybrid", 0.9)])
def test_auto_begins_from_what_the_draft_that_it_runs_has_reached(drafter, of):
    kept = {}
    lanes = Sources().lanes(stats=kept, draft_acceptance=(0.1,), block_acceptance=(0.9,))
    lanes.speculative(PROMPT, GREEDY, BUDGET, drafter, "auto")
    assert kept[drafter].by_position()[0] == pytest.approx(of)
