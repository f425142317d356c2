"""A lane's events as its record: every token with its text, every step with the clock."""

import pytest

from pipeline.decoding.events import Drafted, Finish, FinishReason, Origin, Prefill, Step
from pipeline.trace.recording import LaneRecording
from tests.traces import ran

A, R = Origin.ACCEPTED, Origin.RESAMPLED
STEPS = (
    Step(
        index=0,
        tokens=(1, 2),
        origins=(A, R),
        draft_s=0.25,
        verify_s=1.0,
        other_s=0.5,
        drafted=(1, 4, 5),
        accepted=1,
        target_top=(((1, 0.9), (6, 0.1)), ((2, 1.0),)),
        draft_top=(((1, 0.5),), ((4, 0.5),), ((7, 0.5),)),
        target_kv_len=7,
    ),
    Step(index=1, tokens=(3,), origins=(R,), draft_s=0.0, verify_s=2.0, other_s=0.0),
)


class Halves:
    """Two tokens make a character."""

    def __init__(self):
        self.waiting = 0

    def push(self, token):
        self.waiting = (self.waiting + 1) % 2
        return "" if self.waiting else "é"


def recorder():
    return LaneRecording("any", Halves(), "<{}>".format)


def test_a_lane_holds_the_tokens_their_texts_and_the_clock_at_each_step():
    lane = recorder()
    assert lane.record(Prefill(5, 3.0)).tokens == ()
    assert lane.record(Drafted(0, (1, 4, 5))).tokens == ()
    update = lane.record(STEPS[0])
    assert [(token.id, token.text, token.origin) for token in update.tokens] == [
        (1, "", A),
        (2, "é", R),
    ]
    assert {token.time_s for token in update.tokens} == {update.time_s} == {4.75}
    lane.record(STEPS[1])
    assert lane.finish is None
    lane.record(Finish(FinishReason.LENGTH))

    made = lane.lane()
    assert (made.prefill_s, made.finish, made.text) == (3.0, FinishReason.LENGTH, "é")
    assert [token.id for token in made.tokens] == [1, 2, 3]
    assert [token.step for token in made.tokens] == [0, 0, 1]
    assert [step.time_s for step in made.steps] == [4.75, 6.75]
    assert made.steps[0].drafted == (1, 4, 5)
    assert made.steps[0].target_kv_len == 7


def test_a_lane_looked_at_while_a_step_is_recorded_has_all_of_it_or_nothing():
    """Another thread may look at any time; here, between two tokens of a step."""
    seen = []

    class Looking(Halves):
        def push(self, token):
            seen.append(lane.lane())
            return super().push(token)

    lane = LaneRecording("any", Looking(), str)
    for step in STEPS:
        lane.record(step)
    assert [(len(each.tokens), len(each.steps)) for each in seen] == [(0, 0), (0, 0), (2, 1)]


def test_every_token_that_a_step_names_has_its_text():
    lane = recorder()
    for step in STEPS:
        lane.record(step)
    assert dict(lane.texts()) == {token: f"<{token}>" for token in range(1, 8)}


def test_a_drafted_token_has_its_text_before_its_step_ends():
    """The page shows it as it was drafted."""
    lane = recorder()
    lane.record(Drafted(0, (1, 4, 5)))
    assert dict(lane.texts()) == {1: "<1>", 4: "<4>", 5: "<5>"}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_counts_times_and_texts_of_a_run_add_up(temperature):
    trace = ran(temperature=temperature, max_new_tokens=30)
    for lane in trace.lanes.values():
        assert "".join(token.text for token in lane.tokens) == lane.text
        clock, count = lane.prefill_s, 0
        for step in lane.steps:
            clock += step.draft_s + step.verify_s + step.other_s
            assert step.time_s == pytest.approx(clock)
            made = [token for token in lane.tokens if token.step == step.index]
            assert made
            assert {token.time_s for token in made} == {step.time_s}
            assert step.accepted == sum(token.origin == "accepted" for token in made)
            count += len(made)
        assert count == len(lane.tokens) == 30
    for step in trace.speculative.steps:
        likeliest = [token for top in (*step.target_top, *step.draft_top) for token, _ in top]
        assert {*step.drafted, *likeliest} <= trace.pieces.keys()
