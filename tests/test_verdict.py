"""What the verdict says, of traces whose figures are known."""

import json
import re
from dataclasses import replace

import pytest

from pipeline.decoding.events import FinishReason
from pipeline.request import Request
from pipeline.trace.metrics import TESTED, measured
from tests.fake_dolly import FakeDolly
from tests.traces import alone, changed, contradicting, costing, paced, ran
from ui.verdict import summary, verdict


def test_the_figures_are_the_trace_s_own():
    trace = costing(0.0005, 0.010)
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


@pytest.mark.parametrize("name", ["autoregressive", "speculative"])
def test_one_lane_alone_has_a_verdict_that_says_what_it_cannot_say(name):
    trace = alone(costing(0.001, 0.011), name)
    told = verdict(trace)
    rate = f"{trace.lanes[name].tokens_per_second:.0f} tok/s"
    assert told["headline"] == summary(trace) == rate
    assert "nothing to compare" in told["headline_label"]
    assert told["mark"] == "alone"
    assert (told["acceptance"] == "–") == (name == "autoregressive")


def test_what_runs_or_was_stopped_is_told_as_far_as_it_came():
    def ended(trace, finish):
        for name in trace.lanes:
            trace = changed(trace, name, finish=finish)
        return trace

    begun, trace = FakeDolly([" a", " b"]).start(Request("any")).trace(), costing(0.001, 0.011)
    assert verdict(begun)["headline"] == "Racing…"
    for finish in (None, FinishReason.CANCELLED):
        told = verdict(ended(trace, finish))
        assert (told["why"], told["headline_label"]) == ("", "per decoded token, so far")
        assert summary(ended(trace, finish)) == "Stopped"
    told = verdict(ended(begun, FinishReason.CANCELLED))
    assert (told["headline"], told["mark"], told["why"]) == ("Not compared", "alone", "")
    assert "so far" not in told["headline_label"]


def test_the_label_says_where_a_run_is_from_and_how_far_repeated_ones_are_apart():
    trace = costing(0.001, 0.011)
    assert verdict(trace, "Recorded")["headline_label"] == "per decoded token · Recorded"
    one = verdict(alone(trace, "speculative"), "Loaded")["headline_label"]
    assert one == "speculative decoding alone, with nothing to compare · Loaded"
    label = verdict(trace, earlier=[1.31, 0.87])["headline_label"]
    assert label == f"per decoded token; 3 runs of this race: 0.87× to {trace.speedup:.2f}×"
    assert trace.speedup > 1.31
    shorter = verdict(changed(trace, tokens=trace.speculative.tokens[:-2]))["headline_label"]
    assert "of texts of 100 and 98 tokens" in shorter


def test_rounds_that_drafted_nothing_are_not_compared():
    trace = costing(0.0, 0.007)
    steps = tuple(replace(step, drafted=(), accepted=0) for step in trace.speculative.steps)
    short = costing(0.001, 0.011, max_new_tokens=1)  # its one token is never drafted for
    for each, reason in (
        (changed(trace, steps=steps), "nothing was drafted"),
        (short, "fewer than 8 tokens"),
    ):
        told = verdict(each)
        assert (told["headline"], told["why"]) == ("Not compared", "")
        assert reason in told["headline_label"]


@pytest.mark.parametrize(
    ("draft_s", "verify_s", "reason"),
    [
        (0.100, 0.010, "drafting is too slow"),
        (0.001, 0.100, "verification is too expensive"),
        (0.003, 0.014, "too few drafts are accepted"),
    ],
)
def test_a_loss_is_said_plainly_and_blamed_on_what_would_gain_most(draft_s, verify_s, reason):
    told = verdict(costing(draft_s, verify_s))
    assert told["state"] == "loss"
    assert told["headline"].endswith("× — slower")
    assert told["why"].startswith(f"Main reason: {reason}")


def test_a_loss_that_the_run_does_not_carry_has_no_reason():
    few = costing(0.001, 0.100, max_new_tokens=10)
    assert few.speculative.tested < TESTED
    assert (verdict(few)["state"], verdict(few)["why"]) == ("loss", "")

    mixed = contradicting()
    assert mixed.speedup < 0.95
    assert measured(mixed).speedup > 1
    assert "too uneven to say why" in verdict(mixed)["why"]

    # Verification varies so much that the favourable end of its median would gain.
    noisy = paced(costing(0.0005, 0.010, max_new_tokens=60), "speculative", (0.010, 0.065, 0.065))
    assert noisy.speedup < 0.95
    assert measured(noisy).speedup < 1 < measured(noisy, 1.96).speedup
    assert verdict(noisy)["why"] == "This run is too short or too uneven to say why it lost."


def test_interrupted_steps_are_told_and_no_reason_or_alarm_beside_them():
    def interrupted(trace):
        first, *steps = trace.autoregressive.steps
        return changed(trace, "autoregressive", steps=(replace(first, verify_s=9.0), *steps))

    trace = costing(0.001, 0.011)
    count = sum(len(lane.steps) for lane in trace.lanes.values())
    told = verdict(interrupted(trace))
    assert told["why"].startswith(f"The machine was busy: 1 of {count} steps took over three")
    assert told["headline"] == verdict(trace)["headline"]
    assert (told["again"], verdict(trace)["again"]) == ("Measure again", "")
    assert verdict(interrupted(trace), "Recorded")["again"] == ""
    lost = verdict(interrupted(costing(0.001, 0.100)), found=())
    assert (lost["state"], lost["signature"]) == ("loss", "")
    assert "Main reason" not in lost["why"]


@pytest.mark.parametrize("settings", [{"top_k": 1}, {"top_p": 0.01}])
def test_settings_that_leave_one_token_promise_the_same_text(settings):
    trace = ran(temperature=1.0, max_new_tokens=40, **settings)
    told = verdict(trace)
    assert (told["mark"], told["same"]) == ("same", "Identical text.")
    assert "one possible token at each place: all 40 tokens agree." in told["same_text"]
    assert "chance" not in json.dumps(told)
    assert summary(trace).endswith(" · identical text · 40 tokens")


def test_texts_that_differ_by_chance_are_not_called_identical():
    """Only such a claim, about distributions, has a test to lead to."""
    sampled, greedy = ran(temperature=1.0, max_new_tokens=40), verdict(costing(0.001, 0.011))
    told = verdict(sampled)
    assert (told["same"], told["proof"]) == ("Same distribution.", "How this was tested.")
    assert greedy["proof"] == verdict(alone(sampled, "speculative"))["proof"] == ""
    same = replace(sampled, lanes=dict.fromkeys(sampled.lanes, sampled.autoregressive))
    told = verdict(same)
    assert (told["mark"], told["same"]) == ("alike", "Same distribution, and here the same text.")
    assert "identical" not in summary(same)


@pytest.mark.parametrize(
    ("agreeing", "words"),
    [(0, "The texts differ from the first token on. "), (2, "The first 2 tokens agree, then the ")],
)
def test_texts_that_differ_are_told_from_where(agreeing, words):
    trace = ran(max_new_tokens=10)
    tokens = [*trace.speculative.tokens]
    tokens[agreeing] = replace(tokens[agreeing], id=99)
    told = verdict(changed(trace, tokens=tuple(tokens)))
    assert (told["mark"], told["same"]) == ("differs", "Not identical.")
    assert told["same_text"].startswith(words)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("exact", [True, False])
def test_where_passes_of_different_sizes_differ_the_claim_says_so(temperature, exact):
    trace = ran(temperature=temperature, max_new_tokens=20)
    told = verdict(replace(trace, pair={**trace.pair, "exact_widths": exact}))["same_text"]
    words = "on this machine, rounding depends on the number of tokens in a forward pass"
    assert (words in told) != exact


@pytest.mark.parametrize(
    ("tokens", "passes", "state", "headline"),
    [
        (20, (0.0100, 0.0101), "win", r"\d\.\d× faster"),
        (20, (0.0060, 0.0150), "win", r"\d\.\d–\d\.\d× faster"),
        (20, (0.0060, 0.0170, 0.0390), "even", "Too close to call"),
        (20, (0.0300, 0.0301), "loss", r"\d\.\d× — slower"),
        (9, (0.0040, 0.0110), "even", "Too close to call"),  # too few steps, however fast
    ],
)
def test_a_speedup_is_as_exact_as_the_times_of_its_steps(tokens, passes, state, headline):
    """Passes that take turns, so that none counts as interrupted."""
    told = verdict(paced(costing(0.0005, 0.010, max_new_tokens=tokens), "speculative", passes))
    assert told["state"] == state
    assert re.fullmatch(headline, told["headline"])
