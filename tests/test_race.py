"""The fair clock: no lane gets far ahead, and none pays for another."""

from itertools import groupby, pairwise

import pytest

from pipeline.decoding.events import Drafted, Finish, FinishReason, Origin, Prefill, Step
from pipeline.decoding.race import LEAD, one_by_one, race


def step(index, seconds):
    return Step(
        index=index, tokens=(1,), origins=(Origin.TARGET,), draft_s=0, verify_s=seconds, other_s=0
    )


def lane(prefill, costs, log=None, name=""):
    try:
        yield Prefill(3, prefill)
        for index, cost in enumerate(costs):
            yield Drafted(index, (1,))
            yield step(index, cost)
        yield Finish(FinishReason.LENGTH)
    finally:
        if log is not None:
            log.append(name)


def test_no_lane_gets_ahead_by_more_than_the_lead_and_its_own_last_step():
    clocks = {"slow": 0.0, "fast": 0.0}
    done = set()
    for name, event in race({"slow": lane(1, [5] * 9), "fast": lane(2, [1] * 40)}):
        other = "fast" if name == "slow" else "slow"
        if isinstance(event, Prefill | Step):
            if other not in done:
                assert clocks[name] <= clocks[other] + LEAD
            clocks[name] += event.seconds
        if isinstance(event, Finish):
            done.add(name)
    assert clocks == {"slow": 46.0, "fast": 42.0}


def test_lanes_take_turns_that_are_longer_than_a_step():
    """A change costs; of steps of 10 ms, several are made before the other lane's."""
    lanes = race({"a": lane(0, [0.01] * 40), "b": lane(0, [0.01] * 40)})
    names = [name for name, event in lanes if isinstance(event, Step)]
    changes = sum(one != other for one, other in pairwise(names))
    assert 4 < changes < 20


def test_one_by_one_ends_a_lane_before_it_begins_the_next():
    lanes = one_by_one({"slow": lane(1, [5] * 9), "fast": lane(2, [1] * 40)})
    assert [name for name, _ in groupby(name for name, _ in lanes)] == ["slow", "fast"]


@pytest.mark.parametrize("schedule", [race, one_by_one])
def test_every_event_of_every_lane_arrives_in_its_order(schedule):
    expected = list(lane(1, [1, 2, 3]))
    events = list(schedule({"a": lane(1, [1, 2, 3]), "b": lane(1, [1, 2, 3])}))
    for name in "ab":
        assert [event for lane_name, event in events if lane_name == name] == expected


def test_a_drafted_event_is_followed_by_its_own_step():
    for (name, event), (next_name, next_event) in pairwise(
        race({"a": lane(0, [1] * 5), "b": lane(0, [1] * 5)})
    ):
        if isinstance(event, Drafted):
            assert next_name == name
            assert isinstance(next_event, Step)


@pytest.mark.parametrize(("schedule", "begun"), [(race, ["a", "b"]), (one_by_one, ["a"])])
def test_closing_closes_the_lanes_that_began(schedule, begun):
    log = []
    racing = schedule({"a": lane(0, [1] * 5, log, "a"), "b": lane(0, [1] * 5, log, "b")})
    for _ in range(4):
        next(racing)
    racing.close()
    assert sorted(log) == begun
