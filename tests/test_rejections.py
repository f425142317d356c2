"""Why drafts were rejected, of rounds whose likeliest tokens are known."""

import json
from dataclasses import replace

import pytest

from pipeline.trace.metrics import BIN, acceptance_by_confidence
from pipeline.trace.reader import parse_trace
from pipeline.trace.rejections import CAUSES, rejections
from tests.traces import alone, old, ran


def rejected(trace, target, draft):
    """The trace with a single round, whose first draft was refused, with these likeliest tokens."""
    lane = trace.speculative
    drafts = {"drafted": (7, 8), "accepted": 0, "target_top": (target,), "draft_top": draft}
    step = replace(lane.steps[0], **drafts)
    return replace(trace, lanes={"speculative": replace(lane, steps=(step,))})


@pytest.mark.parametrize(
    ("cause", "target", "draft"),
    [
        ("copy", ((5, 0.9),), ()),
        ("chance", ((7, 0.6), (5, 0.4)), (((7, 0.8),), ((8, 1.0),))),
        ("target", ((5, 0.4), (7, 0.3)), (((7, 0.9),), ((8, 1.0),))),
        ("draft", ((5, 0.9),), (((7, 0.3),), ((8, 1.0),))),
        ("disagreement", ((5, 0.9),), (((7, 0.8),), ((8, 1.0),))),
    ],
)
def test_the_cause_follows_from_the_likeliest_tokens_of_both_models(cause, target, draft):
    (one,) = rejections(rejected(ran(), target, draft))
    assert one.cause == cause
    assert f"({100 * target[0][1]:.0f} %)" in one.told


@pytest.mark.parametrize("temperature", [0, 0.9])
def test_every_rejection_of_a_run_has_one_cause(temperature):
    trace = ran(temperature=temperature, max_new_tokens=300)
    lane, found = trace.speculative, rejections(trace)
    assert len(found) == lane.tested - lane.accepted > 0
    assert {each.cause for each in found} <= {*CAUSES}
    assert len({each.step for each in found}) == len(found)
    assert temperature or "chance" not in {each.cause for each in found}


def test_every_test_of_a_model_s_draft_counts_in_the_bin_of_its_probability():
    lane = ran(temperature=0.9, max_new_tokens=300).speculative
    bins = acceptance_by_confidence(lane)
    known = [
        (step.confidence(place), place < step.accepted)
        for step in lane.steps
        for place in range(step.tested)
        if step.confidence(place) is not None
    ]
    assert sum(each.tested for each in bins.values()) == len(known) > 0
    for low, each in bins.items():
        hits = [
            hit for chance, hit in known if low <= 100 * chance < low + BIN + (low + BIN == 100)
        ]
        assert (each.tested, each.accepted) == (len(hits), sum(hits))


def test_without_likeliest_tokens_or_drafts_nothing_is_said():
    trace = ran()
    bare = parse_trace(json.dumps(old(trace)).encode())
    for one in (bare, alone(trace, "autoregressive")):
        assert rejections(one) == []
    assert acceptance_by_confidence(bare.speculative) == {}
    assert rejections(rejected(trace, (), ())) == []  # as a file from elsewhere may have it
