"""What the verdict says, of traces whose figures are known."""

import json
import re
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from pipeline.decoding.events import FinishReason
from pipeline.request import Request
from pipeline.trace.metrics import TESTED, measured
from tests import traces
from tests.fake_dolly import FakeDolly
from tests.served import to_the_end
from tests.traces import alone, ran
from ui.component import fields
from ui.verdict import summary, verdict


def timed(draft_s, verify_s, step_s=0.010, **settings):
    """A race whose every step took as told: `draft_s` of each drafted token."""
    return traces.timed(
        {
            "autoregressive": lambda step: {"verify_s": step_s, "other_s": 0.0},
            "speculative": lambda step: {
                "draft_s": draft_s * len(step.drafted),
                "verify_s": verify_s,
                "other_s": 0.0,
            },
        },
        **settings,
    )


def test_the_figures_are_the_trace_s_own():
    trace = timed(0.0005, 0.010)
    fast = trace.speculative
    told = verdict(trace)
    assert told["state"] == "win"
    assert told["headline"] == f"{trace.speedup:.1f}× faster"
    assert told["rates"] == f"100 → {fast.tokens_per_second:.0f}"
    assert told["acceptance"] == f"{100 * fast.acceptance_rate:.0f} %"
    assert f"({fast.accepted} of {fast.tested})" in told["counts"]
    assert f"{100 * fast.drafted_yield:.0f} % of all drafts" in told["counts"]
    assert told["per_step"] == f"{fast.block_efficiency:.1f}"
    first = [1000 * lane.tokens[0].time_s for lane in trace.lanes.values()]
    assert told["first"] == " → ".join(f"{ms:.0f}" for ms in first)
    assert told["same"] == "Identical text."


@pytest.mark.parametrize(
    ("draft_s", "verify_s", "reason"),
    [
        (0.100, 0.010, "drafting is too slow"),
        (0.001, 0.100, "verification is too expensive"),
        (0.003, 0.014, "too few drafts are accepted"),
    ],
)
def test_a_loss_is_said_plainly_and_blamed_on_what_would_gain_most(draft_s, verify_s, reason):
    told = verdict(timed(draft_s, verify_s))
    assert told["state"] == "loss"
    assert told["headline"].endswith("× — slower")
    assert told["why"].startswith(f"Main reason: {reason}")


@pytest.mark.parametrize("name", ["autoregressive", "speculative"])
def test_one_lane_alone_has_a_verdict_that_says_what_it_cannot_say(name):
    trace = alone(timed(0.001, 0.011), name)
    told = verdict(trace)
    rate = f"{trace.lanes[name].tokens_per_second:.0f} tok/s"
    assert told["headline"] == rate
    assert "nothing to compare" in told["headline_label"]
    assert told["mark"] == "alone"
    assert (told["acceptance"] == "–") == (name == "autoregressive")
    assert summary(trace) == rate


def ended(trace, finish):
    """The same, with other ends of its lanes."""
    lanes = {name: replace(lane, finish=finish) for name, lane in trace.lanes.items()}
    return replace(trace, lanes=lanes)


def test_what_runs_or_was_stopped_is_told_as_far_as_it_came():
    begun, trace = FakeDolly([" a", " b"]).start(Request("any")).trace(), timed(0.001, 0.011)
    assert verdict(begun)["headline"] == "Racing…"
    for finish in (None, FinishReason.CANCELLED):
        told = verdict(ended(trace, finish))
        assert (told["why"], told["headline_label"]) == ("", "per decoded token, so far")
        assert summary(ended(trace, finish)) == "Stopped"
    told = verdict(ended(begun, FinishReason.CANCELLED))
    assert (told["headline"], told["mark"], told["why"]) == ("Not compared", "alone", "")
    assert "so far" not in told["headline_label"]


def test_the_label_says_where_a_run_is_from_and_how_far_repeated_ones_are_apart():
    trace = timed(0.001, 0.011)
    assert verdict(trace, "Recorded")["headline_label"] == "per decoded token · Recorded"
    one = verdict(alone(trace, "speculative"), "Loaded")["headline_label"]
    assert one == "speculative decoding alone, with nothing to compare · Loaded"
    label = verdict(trace, earlier=[1.31, 0.87])["headline_label"]
    assert label == f"per decoded token; 3 runs of this race: 0.87× to {trace.speedup:.2f}×"
    assert trace.speedup > 1.31


def test_rounds_that_drafted_nothing_are_not_compared():
    trace = timed(0.0, 0.007)
    drafts = {"drafted": (), "accepted": 0}
    steps = tuple(replace(step, **drafts) for step in trace.speculative.steps)
    fast = replace(trace.speculative, steps=steps)
    undrafted = replace(trace, lanes={**trace.lanes, "speculative": fast})
    short = timed(0.001, 0.011, max_new_tokens=1)  # its one token is never drafted for
    for each, reason in ((undrafted, "nothing was drafted"), (short, "fewer than 8 tokens")):
        told = verdict(each)
        assert (told["headline"], told["why"]) == ("Not compared", "")
        assert reason in told["headline_label"]


def test_few_tested_drafts_do_not_explain_a_loss():
    trace = timed(0.001, 0.100, max_new_tokens=10)
    assert trace.speculative.tested < TESTED
    told = verdict(trace)
    assert (told["state"], told["why"]) == ("loss", "")


def test_parts_that_contradict_the_whole_are_not_its_explanation():
    """Most rounds are cheap, and the others lose more than these gain: medians do not show it."""
    trace = timed(0.0005, 0.010, max_new_tokens=60)
    fast = trace.speculative
    costly = len(fast.steps) // 2 - 1
    steps = [replace(step, verify_s=0.029) for step in fast.steps[:costly]]
    fast = replace(fast, steps=(*steps, *fast.steps[costly:]))
    slow = trace.autoregressive
    slow = replace(slow, steps=tuple(replace(step, verify_s=0.0065) for step in slow.steps))
    mixed = replace(trace, lanes={"autoregressive": slow, "speculative": fast})
    assert mixed.speedup < 0.95
    assert measured(mixed).speedup > 1
    why = verdict(mixed)["why"]
    assert "too uneven to say why" in why
    assert "Main reason" not in why


@pytest.mark.parametrize("settings", [{"top_k": 1}, {"top_p": 0.01}])
def test_settings_that_leave_one_token_promise_the_same_text(settings):
    trace = ran(temperature=1.0, max_new_tokens=40, **settings)
    told = verdict(trace)
    assert (told["mark"], told["same"]) == ("same", "Identical text.")
    assert "one possible token at each place: all 40 tokens agree." in told["same_text"]
    assert "chance" not in json.dumps(told)
    assert summary(trace).endswith(" · identical text · 40 tokens")
    assert verdict(alone(trace, "speculative"))["mark"] == "alone"


def test_texts_that_differ_by_chance_are_not_called_identical():
    """Only such a claim, about distributions, has a test to lead to."""
    sampled, greedy = ran(temperature=1.0, max_new_tokens=40), verdict(timed(0.001, 0.011))
    told = verdict(sampled)
    assert (told["same"], told["proof"]) == ("Same distribution.", "How this was tested.")
    assert greedy["proof"] == verdict(alone(sampled, "speculative"))["proof"] == ""
    same = {"speculative": sampled.autoregressive, "autoregressive": sampled.autoregressive}
    told = verdict(replace(sampled, lanes=same))
    assert (told["mark"], told["same"]) == ("alike", "Same distribution, and here the same text.")
    assert "identical" not in summary(replace(sampled, lanes=same))


@pytest.mark.parametrize(
    ("agreeing", "words"),
    [(0, "The texts differ from the first token on. "), (2, "The first 2 tokens agree, then the ")],
)
def test_texts_that_differ_are_told_from_where(agreeing, words):
    trace = ran(max_new_tokens=10)
    tokens = [*trace.speculative.tokens]
    tokens[agreeing] = replace(tokens[agreeing], id=99)
    fast = replace(trace.speculative, tokens=tuple(tokens))
    told = verdict(replace(trace, lanes={**trace.lanes, "speculative": fast}))
    assert (told["mark"], told["same"]) == ("differs", "Not identical.")
    assert told["same_text"].startswith(words)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("exact", [True, False])
def test_where_passes_of_different_sizes_differ_the_claim_says_so(temperature, exact):
    trace = ran(temperature=temperature, max_new_tokens=20)
    told = verdict(replace(trace, pair={**trace.pair, "exact_widths": exact}))["same_text"]
    words = "on this machine, rounding depends on the number of tokens in a forward pass"
    assert (words in told) != exact


def test_a_loss_within_its_noise_has_no_reason():
    """Verification varies so much that the favourable end of its median would gain."""
    trace = timed(0.0005, 0.010, max_new_tokens=60)
    fast = trace.speculative
    steps = [replace(s, verify_s=0.065 if i % 3 else 0.010) for i, s in enumerate(fast.steps)]
    noisy = replace(trace, lanes={**trace.lanes, "speculative": replace(fast, steps=tuple(steps))})
    assert noisy.speedup < 0.95
    assert measured(noisy).speedup < 1 < measured(noisy, 1.96).speedup
    assert verdict(noisy)["why"] == "This run is too short or too uneven to say why it lost."


def slowed(trace, name, seconds):
    """The trace with the times of one lane's passes, in turn."""
    lane = trace.lanes[name]
    steps = [replace(s, verify_s=seconds[i % len(seconds)]) for i, s in enumerate(lane.steps)]
    return replace(trace, lanes={**trace.lanes, name: replace(lane, steps=tuple(steps))})


@pytest.mark.parametrize(
    ("passes", "state", "headline"),
    [
        ((0.0100, 0.0101), "win", r"\d\.\d× faster"),
        ((0.0060, 0.0150), "win", r"\d\.\d–\d\.\d× faster"),
        ((0.0060, 0.0170, 0.0390), "even", "Too close to call"),
        ((0.0300, 0.0301), "loss", r"\d\.\d× — slower"),
    ],
)
def test_a_speedup_is_as_exact_as_the_times_of_its_steps(passes, state, headline):
    """Passes that take turns, so that none counts as interrupted."""
    told = verdict(slowed(timed(0.0005, 0.010, max_new_tokens=20), "speculative", passes))
    assert told["state"] == state
    assert re.fullmatch(headline, told["headline"])


def test_too_few_steps_are_too_close_to_call_however_fast():
    trace = timed(0.0001, 0.010, max_new_tokens=9)
    uneven = slowed(trace, "speculative", (0.004, 0.011))
    assert uneven.speedup > 1.5
    assert verdict(uneven)["headline"] == "Too close to call"


def test_the_lengths_of_texts_that_differ_in_length_are_beside_the_speedup():
    trace = timed(0.001, 0.011)
    fast = replace(trace.speculative, tokens=trace.speculative.tokens[:-2])
    told = verdict(replace(trace, lanes={**trace.lanes, "speculative": fast}))
    slow = len(trace.autoregressive.tokens)
    assert f"of texts of {slow} and {slow - 2} tokens" in told["headline_label"]
    assert "of texts of" not in verdict(trace)["headline_label"]


def test_a_disturbed_race_has_no_reason_and_is_not_called_usual():
    trace = timed(0.001, 0.100)
    slow = trace.autoregressive
    steps = (replace(slow.steps[0], verify_s=9.0), *slow.steps[1:])
    slow = replace(slow, steps=steps)
    told = verdict(replace(trace, lanes={**trace.lanes, "autoregressive": slow}), found=())
    assert told["state"] == "loss"
    assert "busy" in told["why"]
    assert "Main reason" not in told["why"]
    assert told["signature"] == ""


def test_interrupted_steps_are_told():
    trace = timed(0.001, 0.011)
    slow = trace.autoregressive
    steps = (replace(slow.steps[0], verify_s=9.0), *slow.steps[1:])
    lanes = {**trace.lanes, "autoregressive": replace(slow, steps=steps)}
    count = sum(len(lane.steps) for lane in lanes.values())
    told = verdict(replace(trace, lanes=lanes))
    assert told["why"].startswith(f"The machine was busy: 1 of {count} steps took over three")
    assert told["headline"] == verdict(trace)["headline"]
    assert (told["again"], verdict(trace)["again"]) == ("Measure again", "")
    assert verdict(replace(trace, lanes=lanes), "Recorded")["again"] == ""


def test_a_disturbed_race_is_measured_again_at_a_click(page, dolly):
    to_the_end(page)
    again = page.get_by_test_id("verdict").get_by_role("button", name="Measure again")
    expect(again).to_be_hidden()
    page.evaluate(
        """(value) => document.dispatchEvent(
            new CustomEvent("update", { detail: { name: "verdict", value } }))""",
        fields(**verdict(ran()) | {"again": "Measure again"}),
    )
    again.click()
    page.locator(".panes[data-source=live]").wait_for()
    assert len(dolly.started) == 1
