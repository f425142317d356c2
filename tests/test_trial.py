"""The figures of the trial, on traces whose times are given."""

from dataclasses import replace

import pytest

from lab.load import trial
from lab.load.parts import Finding
from lab.load.trial import growth, overlapping, slowdown
from lab.load.visitors import overtaken
from tests.traces import timed

STEP = 0.1  # seconds


def raced(replica, began, step=STEP):
    """A race in which each step takes so many seconds."""
    cost = {"draft_s": 0.0, "verify_s": step, "other_s": 0.0}
    trace = timed(dict.fromkeys(("autoregressive", "speculative"), lambda _: cost))
    environment = {"replica": replica, "replica_began": began}
    return replace(trace, environment=environment)


def test_races_overlap_where_one_began_before_the_other_had_computed_all():
    lanes = raced("a", 0.0).lanes.values()
    ends = sum(lane.prefill_s + STEP * len(lane.steps) for lane in lanes)
    after = raced("a", ends + 0.01)
    assert overlapping([raced("a", 0.0), after]) == 0
    assert overlapping([after, raced("a", 0.0), raced("b", 0.5)]) == 0
    assert overlapping([raced("a", 0.0), raced("a", ends - 0.01)]) == 1


def test_whoever_begins_well_before_one_who_came_earlier_has_overtaken():
    assert overtaken([0.0, 0.1, 0.05, 2.0]) == 0
    assert overtaken([0.0, 5.0, 1.0, 6.0]) == 1


def test_a_replica_is_compared_with_itself_alone():
    alone = [raced("a", 0.0, 0.1), raced("b", 0.0, 0.2)]
    together = [raced("a", 0.0, 0.11), raced("b", 0.0, 0.24)]
    assert slowdown(alone, together, "autoregressive") == pytest.approx((1.1 + 1.2) / 2)


@pytest.mark.parametrize(
    ("sizes", "more"), [([5, 5, 10, 10, 10, 10], 0.0), ([1, 1, 10, 10, 11, 11], 0.1), ([1], 0.0)]
)
def test_memory_grows_from_the_second_third_to_the_last(sizes, more):
    assert growth(sizes) == pytest.approx(more)


def test_a_claim_that_does_not_hold_is_a_failure():
    assert trial._finding("processes left", 0) == Finding({"processes left": 0})
    found = trial._finding("a claim", 1.23456, False, "is more than 1")
    assert found == Finding({"a claim": 1.235}, ("a claim: 1.235 is more than 1",))
