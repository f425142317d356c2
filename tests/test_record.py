"""The record: events as lanes, its figures from its counts and seconds, and its JSON."""

import json
from dataclasses import replace

import pytest

from pipeline.decoding.drafters import DRAFTERS
from pipeline.decoding.events import Drafted, Finish, FinishReason, Origin, Prefill, Step
from pipeline.decoding.verification import VERIFIERS, Verifier
from pipeline.request import SETTINGS, Request
from pipeline.trace.reader import parse_trace
from pipeline.trace.recording import LaneRecording
from tests.fake_dolly import FakeDolly
from tests.traces import WORDS, alone, changed, ran, timed


def lanes(slow_s, fast_s):
    return timed(
        {
            "autoregressive": lambda step: {"verify_s": slow_s, "other_s": 0.0},
            "speculative": lambda step: {"draft_s": 0.0, "verify_s": fast_s, "other_s": 0.0},
        }
    )


def test_the_json_has_the_names_of_trace_1():
    record = json.loads(ran(temperature=1.0).to_json())
    assert record["schema"] == "trace@1"
    lane = record["lanes"]["speculative"]
    assert lane.keys() == {"prefill_s", "finish", "text", "tokens", "steps"}
    assert lane["tokens"][0].keys() == {"id", "text", "origin", "step", "time_s"}
    named = {"index", "draft_s", "verify_s", "other_s", "time_s", "drafted", "accepted"}
    named |= {"draft_prob", "target_prob", "accept_prob", "uniform", "target_top", "draft_top"}
    named |= {"target_kv_len", "draft_kv_len", "target_kv_bytes", "draft_kv_bytes"}
    assert all(named <= step.keys() for step in lane["steps"])


def test_a_method_that_the_record_has_never_heard_of_is_recorded_by_its_properties(monkeypatch):
    hasty = Verifier("Hasty", VERIFIERS["block"].verify, exact=False, jointly=True)
    monkeypatch.setitem(VERIFIERS, "hasty", hasty)
    monkeypatch.setitem(DRAFTERS, "other", replace(DRAFTERS["block"], name="other"))
    monkeypatch.setitem(SETTINGS["verification"].choices, "hasty", "Hasty")
    monkeypatch.setitem(SETTINGS["drafter"].choices, "other", "Other")
    trace = ran(verification="hasty", drafter="other", temperature=1.0)
    assert trace.lossy
    assert trace.verifies_blocks
    assert replace(trace, pair={**trace.pair, "block": {}}).drafts_blocks is False
    assert replace(trace, pair={**trace.pair, "block": {"id": "any"}}).drafts_blocks
    assert parse_trace(trace.to_json()) == trace


def test_the_figures_of_drafts_have_the_names_that_others_use():
    trace = ran(max_new_tokens=40)
    metrics, lane = trace.to_dict()["metrics"], trace.speculative
    drafts = [step for step in lane.steps if step.drafted]
    length = metrics["speculative"]["mean_acceptance_length"]
    assert length == pytest.approx(sum(step.accepted + 1 for step in drafts) / len(drafts))
    rate = metrics["speculative"]["draft_acceptance_rate"]
    assert rate == sum(s.accepted for s in drafts) / sum(len(s.drafted) for s in drafts)
    by_position = metrics["speculative"]["per_position_acceptance_rate"]
    assert by_position == sorted(by_position, reverse=True)
    assert 1 + sum(by_position) == pytest.approx(length)
    assert metrics["autoregressive"] == {
        "num_drafts": 0,
        "num_draft_tokens": 0,
        "num_accepted_tokens": 0,
        "mean_acceptance_length": None,
        "draft_acceptance_rate": None,
        "per_position_acceptance_rate": [],
        "num_draft_tokens_per_step": [0] * 40,
        "num_accepted_tokens_per_step": [0] * 40,
    }


def test_the_figures_of_a_trace_that_is_read_are_computed_again():
    written = ran().to_dict()
    forged = json.dumps({**written, "metrics": {"speculative": {"draft_acceptance_rate": 1.0}}})
    assert parse_trace(forged).to_dict()["metrics"] == written["metrics"]


def test_the_share_emitted_is_of_the_budgets_of_all_lanes():
    assert ran(max_new_tokens=20).share_emitted == 1
    begun = FakeDolly(WORDS).start(Request("any", max_new_tokens=20))
    assert begun.trace().share_emitted == 0
    for _ in begun:
        lanes = begun.trace().lanes.values()
        assert begun.trace().share_emitted == sum(len(lane.tokens) for lane in lanes) / 40


def test_the_speedup_is_of_decoded_tokens_prefill_apart():
    trace = lanes(0.010, 0.012)
    fast = trace.speculative
    assert trace.autoregressive.tokens_per_second == pytest.approx(100)
    assert fast.seconds_per_token == pytest.approx(0.012 * len(fast.steps) / len(fast.tokens))
    assert trace.speedup == pytest.approx(0.010 / fast.seconds_per_token)
    assert alone(trace, "speculative").speedup is None


def test_a_step_that_was_interrupted_counts_as_the_median_of_its_kind():
    """Its kind: as many drafted tokens. A slow kind of step is no interruption."""
    times = {"verify_s": 0.010, "other_s": 0.0}
    slow = {"verify_s": 0.721, "other_s": 0.0}
    trace = timed(
        {
            "autoregressive": lambda step: slow if step.index == 7 else times,
            "speculative": lambda step: slow if step.index == 2 else times,
        },
        max_new_tokens=60,
    )
    for lane in trace.lanes.values():
        assert lane.disturbed == 1
        assert lane.decode_s > 0.721
        assert max(lane.undisturbed) < 0.1
    assert trace.autoregressive.tokens_per_second == pytest.approx(100)
    kinds = {0: 0.010, 4: 0.070}
    other = timed(
        {"speculative": lambda step: {"verify_s": kinds.get(len(step.drafted), 0.03)}},
        max_new_tokens=60,
    )
    assert other.speculative.disturbed == 0


def test_a_lane_without_tokens_or_without_time_has_no_rate():
    trace = lanes(0.010, 0.0)
    assert trace.speculative.tokens_per_second is None
    assert trace.speedup is None
    nothing = replace(trace.speculative, tokens=(), steps=(), text="")
    figures = ("tokens_per_second", "seconds_per_token", "acceptance_rate", "block_efficiency")
    assert [getattr(nothing, name) for name in figures] == [None] * 4


def test_identical_is_claimed_of_greedy_runs_that_ended():
    greedy = ran()
    assert greedy.identical
    assert greedy.agreeing_tokens == len(greedy.speculative.tokens)
    assert ran(temperature=1.0).identical is None
    assert changed(greedy, finish=FinishReason.CANCELLED).identical is None
    last = replace(greedy.speculative.tokens[-1], id=999)
    differing = changed(greedy, tokens=(*greedy.speculative.tokens[:-1], last))
    assert differing.identical is False
    assert differing.agreeing_tokens == len(greedy.speculative.tokens) - 1


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
