"""The cost model: its algebra by property, its numbers from a trace by hand."""

from dataclasses import replace

import numpy as np
import pytest

from pipeline.request import Request
from pipeline.trace.cost_model import CostModel, measured
from tests.fake_dolly import FakeDolly

LENGTHS = range(9)


def models(count):
    rng = np.random.default_rng(7)
    for _ in range(count):
        yield CostModel(
            acceptance=float(rng.uniform(0, 1)),
            draft=float(rng.uniform(0, 0.6)),
            verify=float(rng.uniform(-0.2, 1.5)),
            length=int(rng.integers(1, 9)),
        )


def test_the_yield_is_the_closed_form():
    for model in models(200):
        a, k = model.acceptance, model.length
        assert model.block_efficiency == pytest.approx((1 - a ** (k + 1)) / (1 - a))
    assert replace(model, acceptance=1.0).block_efficiency == model.length + 1


def test_at_break_even_a_round_costs_what_it_yields():
    found = 0
    for model in models(500):
        even = model.break_even
        if even is None:  # then even a perfect draft loses
            assert model.length + 1 < model.cost
            continue
        at = replace(model, acceptance=even)
        if even > 1e-6:
            cost = 1 + model.length * model.draft + model.verify
            assert at.block_efficiency == pytest.approx(cost)
            found += 1
        assert (model.speedup > 1) == (model.acceptance > even)
    assert found > 100


def test_the_best_length_is_the_one_that_a_search_finds():
    for model in models(500):
        speedups = []
        for k in LENGTHS:
            yields = sum(model.acceptance**place for place in range(k + 1))
            speedups.append(yields / (1 + k * model.draft + model.verify) if k else 1.0)
        best = model.best_length(LENGTHS)
        assert speedups[best] == pytest.approx(max(speedups))
    assert replace(model, acceptance=0.0).best_length(LENGTHS) == 0


@pytest.mark.parametrize(
    ("model", "worst"),
    [
        (CostModel(acceptance=0.2, draft=0.1, verify=0.1, length=4), "acceptance"),
        (CostModel(acceptance=0.95, draft=0.9, verify=0.1, length=4), "draft"),
        (CostModel(acceptance=0.95, draft=0.05, verify=3.0, length=4), "verify"),
    ],
)
def test_the_worst_part_is_the_one_whose_ideal_gains_most(model, worst):
    assert model.worst_part() == worst


def trace_of(lane_steps=None, **settings):
    trace = FakeDolly([f" w{i}" for i in range(12)]).start(Request("any", **settings)).finish()
    for name, changes in (lane_steps or {}).items():
        lane = trace.lanes[name]
        steps = tuple(replace(step, **changes(step)) for step in lane.steps)
        trace.lanes[name] = replace(lane, steps=steps)
    return trace


def test_the_numbers_are_the_medians_of_the_run():
    trace = trace_of(
        {
            "autoregressive": lambda step: {
                "verify_s": 0.009 if step.index else 5.0,  # one slow run says nothing
                "other_s": 0.001,
            },
            "speculative": lambda step: {
                "draft_s": 0.002 * len(step.drafted) if step.index else 3.0,
                "verify_s": 0.011 if step.index else 2.0,
                "other_s": 0.002,
            },
        },
        draft_length=3,
    )
    model = measured(trace)
    assert model.draft == pytest.approx(0.2)
    assert model.verify == pytest.approx(0.3)
    assert model.length == 3
    assert model.acceptance == trace.speculative.acceptance_rate


def test_without_both_lanes_nothing_is_claimed():
    trace = trace_of()
    for name in list(trace.lanes):
        alone = replace(trace, lanes={name: trace.lanes[name]})
        assert measured(alone) is None
    nothing = {name: replace(lane, steps=()) for name, lane in trace.lanes.items()}
    assert measured(replace(trace, lanes=nothing)) is None
