"""The lanes of a request, from fakes of its parts: no model, no OpenVINO."""

import threading

import pytest

from pipeline.decoding.drafters import DEFAULT_DRAFTER, DRAFTERS
from pipeline.decoding.economics import Costs
from pipeline.decoding.events import AUTOREGRESSIVE, SPECULATIVE, Finish, FinishReason, Step
from pipeline.decoding.lanes import Lanes
from pipeline.decoding.sampling import SamplingParams
from pipeline.errors import UserError
from tests.fakes import FakeBlock, FakeLM

PROMPT, GREEDY, BUDGET = [1, 2, 3], SamplingParams(), 24


class Parts:
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


def tokens(events):
    return [token for event in events if isinstance(event, Step) for token in event.tokens]


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
    lanes = Parts().lanes().of(mode, PROMPT, GREEDY, BUDGET, DEFAULT_DRAFTER, 4)
    assert list(lanes) == names


@pytest.mark.parametrize("draft_length", [1, 4, 8, "auto"])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_every_drafter_at_every_length_writes_the_autoregressive_text(drafter, draft_length):
    lanes = Parts().lanes()
    slow = tokens(lanes.autoregressive(PROMPT, GREEDY, BUDGET))
    assert len(slow) == BUDGET
    assert tokens(lanes.speculative(PROMPT, GREEDY, BUDGET, drafter, draft_length)) == slow


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_lane_asks_only_for_what_its_drafter_needs(drafter):
    parts = Parts()
    list(parts.lanes().speculative(PROMPT, GREEDY, BUDGET, drafter, 4))
    drafts = {"model": ["draft"], "lookup": []}.get(drafter, ["block"])
    assert [model for model, _ in parts.made] == ["target", *drafts]
    assert all(prompt in ((), tuple(PROMPT)) for _, prompt in parts.made)


def test_without_a_block_draft_the_hybrid_takes_the_draft_model():
    parts = Parts()
    lanes = Lanes(target=parts.target, draft=parts.draft, costs=parts.costs)
    list(lanes.speculative(PROMPT, GREEDY, BUDGET, "hybrid", 4))
    assert [model for model, _ in parts.made] == ["target", "draft"]


def test_an_autoregressive_lane_needs_a_target_alone():
    parts = Parts()
    assert len(tokens(Lanes(target=parts.target).autoregressive(PROMPT, GREEDY, 5))) == 5
    with pytest.raises(ValueError, match="no draft model"):
        Lanes(target=parts.target).speculative(PROMPT, GREEDY, 5, DEFAULT_DRAFTER, 4)
    with pytest.raises(ValueError, match="not measured"):
        Lanes(target=parts.target, draft=parts.draft).speculative(
            PROMPT, GREEDY, 5, DEFAULT_DRAFTER, "auto"
        )


def test_costs_are_asked_for_only_by_what_needs_them_as_its_entry_says():
    for drafter, spec in DRAFTERS.items():
        parts = Parts()
        list(parts.lanes().speculative(PROMPT, GREEDY, BUDGET, drafter, 4))
        assert bool(parts.measured) == spec.compares
    parts = Parts()
    lanes = parts.lanes()
    list(lanes.speculative(PROMPT, GREEDY, BUDGET, DEFAULT_DRAFTER, "auto"))
    assert parts.measured == 1
    assert list(lanes.stats) == [DEFAULT_DRAFTER]


def test_what_is_learned_of_a_drafter_is_its_own_and_outlives_a_generation():
    parts, kept = Parts(), {}
    for drafter in DRAFTERS:
        list(parts.lanes(stats=kept).speculative(PROMPT, GREEDY, BUDGET, drafter, "auto"))
    assert list(kept) == list(DRAFTERS)
    assert kept["lookup"].costs.draft == 0
    before = dict(kept)
    list(parts.lanes(stats=kept).speculative(PROMPT, GREEDY, BUDGET, DEFAULT_DRAFTER, "auto"))
    assert kept == before


def test_two_runs_that_begin_at_once_share_what_is_learned_of_a_drafter(monkeypatch):
    both, used = threading.Barrier(2), []

    def costs():
        both.wait()  # neither has kept anything yet
        return Costs(0.1, (1.0,) * 9)

    monkeypatch.setattr("pipeline.decoding.lanes.Auto", lambda stats: used.append(stats))
    parts, kept = Parts(), {}

    def begin():
        lanes = Lanes(target=parts.target, draft=parts.draft, costs=costs, stats=kept)
        lanes._draft_length(DRAFTERS[DEFAULT_DRAFTER], "auto")()

    threads = [threading.Thread(target=begin) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [*map(id, used)] == [id(kept[DEFAULT_DRAFTER])] * 2


def test_the_end_tokens_end_each_lane():
    parts = Parts()
    end = tokens(parts.lanes().autoregressive(PROMPT, GREEDY, BUDGET))[5]
    lanes = parts.lanes(end_ids=frozenset({end}))
    for lane in lanes.of("race", PROMPT, GREEDY, BUDGET, DEFAULT_DRAFTER, 4).values():
        events = list(lane)
        assert events[-1] == Finish(FinishReason.STOP)
        assert tokens(events)[-1] == end


def test_candidates_are_named_where_they_are_asked_for():
    for count in (0, 3):
        lanes = Parts().lanes(candidates=count)
        for lane in lanes.of("race", PROMPT, GREEDY, 6, DEFAULT_DRAFTER, 2).values():
            tops = [top for event in lane if isinstance(event, Step) for top in event.target_top]
            assert bool(tops) == bool(count)


def test_a_drafter_that_is_not_registered_is_refused():
    with pytest.raises(UserError, match="drafter"):
        Parts().lanes().speculative(PROMPT, GREEDY, BUDGET, "nobody", 4)
