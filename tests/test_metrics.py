"""The figures of a trace: each adds up to what the record holds."""

import json
from dataclasses import replace
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.trace.metrics import (
    LOST,
    Acceptance,
    acceptance_by_position,
    break_even_s,
    cache_use,
    measured,
    outlier_limit,
    prediction,
    progress,
    residual,
    seconds_by_part,
    speedup_interval,
    token_seconds_by_part,
    yields,
)
from pipeline.trace.reader import parse_trace
from tests.traces import alone, old, ran, timed


@pytest.mark.parametrize("name", ["autoregressive", "speculative"])
def test_the_parts_of_a_lane_s_time_are_all_of_it(name):
    lane = ran().lanes[name]
    parts = seconds_by_part(lane)
    assert sum(parts.values()) == pytest.approx(lane.total_s)
    assert lane.total_s == pytest.approx(lane.steps[-1].time_s)
    assert (parts["draft"] > 0) == (name == "speculative")


def test_progress_goes_from_the_prefill_to_the_last_token():
    lane = ran().speculative
    first, *others = progress(lane)
    assert (first.time_s, first.tokens, first.tokens_per_second) == (lane.prefill_s, 0, None)
    for point, step in zip(others, lane.steps, strict=True):
        so_far = [token for token in lane.tokens if token.step <= step.index]
        assert (point.time_s, point.tokens) == (step.time_s, len(so_far))
        rate = len(so_far) / (step.time_s - lane.prefill_s)
        assert point.tokens_per_second == pytest.approx(rate)
    assert others[-1].decode_s == pytest.approx(lane.decode_s)


def test_break_even_is_what_a_step_s_tokens_take_one_by_one():
    trace = timed({"autoregressive": lambda step: {"verify_s": 0.01, "other_s": 0.0}})
    lane = trace.speculative
    made = [sum(token.step == step.index for token in lane.tokens) for step in lane.steps]
    assert break_even_s(trace, lane) == pytest.approx([0.01 * count for count in made])
    assert break_even_s(alone(trace, "speculative"), lane) == []


def test_the_outlier_limit_keeps_at_least_three_quarters():
    assert outlier_limit([5.0] * 20) is None
    assert outlier_limit([1.0, 2.0, 3.0]) is None
    values = [5.0 + 0.1 * (i % 7) for i in range(40)] + [80.0, 90.0]
    limit = outlier_limit(values)
    assert max(values[:40]) < limit < 80
    split = [1.0] * 15 + [100.0] * 25  # no outliers: most are large
    assert outlier_limit(split) is None


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_yields_are_every_token_emitted_and_every_draft_lost(temperature):
    lane = ran(temperature=temperature).speculative
    for step, count in zip(lane.steps, yields(lane), strict=True):
        emitted = [token for token in lane.tokens if token.step == step.index]
        lost = sum(count[what] for what in LOST)
        assert sum(count.values()) - lost == len(emitted)
        assert lost == len(step.drafted) - sum(token.origin == "accepted" for token in emitted)
        assert min(count.values()) >= 0


def test_acceptance_by_position_adds_up_to_the_lane_s():
    lane = ran().speculative
    found = acceptance_by_position(lane.steps)
    assert sum(each.tested for each in found) == lane.tested
    assert sum(each.accepted for each in found) == lane.accepted
    for each in found:
        low, high = each.interval
        assert 0 <= low <= each.rate <= high <= 1


def test_the_interval_is_wilson_s():
    """The values of Newcombe 1998 (Statistics in Medicine 17, table I, method 3)."""
    for accepted, tested, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        assert Acceptance(tested, accepted).interval == pytest.approx((low, high), abs=1e-4)


def test_the_residual_is_what_the_target_gives_beyond_the_draft():
    first, second, third, fourth = residual({1: 0.5, 2: 0.3, 3: 0.1}, {1: 0.7, 2: 0.1, 4: 0.2})
    assert (first.token, first.target, first.draft) == (2, 0.3, 0.1)
    assert first.residual == pytest.approx(0.2)
    assert first.share == pytest.approx(2 / 3)
    assert (second.token, second.draft) == (3, None)
    assert second.share == pytest.approx(1 / 3)
    assert {third.token, fourth.token} == {1, 4}
    assert third.residual == fourth.residual == 0.0
    assert [each.share for each in residual({1: 0.2}, {1: 0.2})] == [None]


def test_a_cache_s_use_is_what_the_steps_recorded():
    trace = ran()
    lane = trace.speculative
    use = cache_use(trace, lane)
    assert list(use) == ["target", "draft"]
    target = use["target"]
    assert target.tokens == [step.target_kv_len for step in lane.steps]
    assert target.bytes == [step.target_kv_bytes for step in lane.steps]
    block = trace.pair["kv_block"]
    for count, blocks in zip(target.tokens, target.blocks, strict=True):
        assert (blocks - 1) * block < count <= blocks * block
    for megabytes, size in zip(target.megabytes, target.bytes, strict=True):
        assert 1_000_000 * megabytes == pytest.approx(size)
    assert use["draft"].rolled_back == [step.draft_rolled_back for step in lane.steps]
    assert sum(target.rolled_back) == lane.drafted - lane.accepted
    for at, total in enumerate(target.rolled_back_so_far):
        assert total == sum(target.rolled_back[: at + 1])
    assert list(cache_use(trace, trace.autoregressive)) == ["target"]


def test_what_a_trace_does_not_say_of_its_caches_is_none():
    record = old(ran())
    del record["pair"]["kv_block"]
    trace = parse_trace(json.dumps(record))
    for use in cache_use(trace, trace.speculative).values():
        assert use.rolled_back is None
        assert use.rolled_back_so_far is None
        assert use.blocks is None


def test_the_cost_model_is_made_of_the_medians_of_the_run():
    trace = timed(
        {
            "autoregressive": lambda step: {
                "verify_s": 0.009 if step.index else 5.0,  # one slow step changes nothing
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
    assert model.costs.of_round(8) == pytest.approx(8 * 0.2 + 1.3)  # what it is for every K
    passes = replace(trace, pair={**trace.pair, "pass_costs": [1.0, 1.0, 1.1, 1.2, 1.6]})
    known = measured(passes)
    assert known.verify == pytest.approx(0.3)  # as the run had it
    assert known.costs.of_round(4) == pytest.approx(
        4 * 0.2 + 1.6 + 0.1
    )  # a pass of 5, and the rest
    assert known.costs.verify[0] == 1


def test_the_cost_model_expects_at_each_place_what_the_run_accepted_there():
    trace = ran(draft_length=4, max_new_tokens=400)
    lane, model = trace.speculative, measured(trace)
    places = acceptance_by_position(lane.steps)
    assert len(model.powers) == len(places) > 1
    for place, power in zip(places, model.powers, strict=True):
        assert place.tested > 20
        assert model.acceptance**power == pytest.approx(place.rate, abs=0.15)


def test_the_parts_of_a_predicted_token_add_up_and_a_block_costs_the_same_for_every_length():
    trace = timed(
        {
            "autoregressive": lambda step: {"verify_s": 0.010, "other_s": 0.0},
            "speculative": lambda step: {"draft_s": 0.003, "verify_s": 0.011, "other_s": 0.001},
        },
    )
    request = {**trace.request, "at_once": True}
    run = prediction(replace(trace, pair={**trace.pair, "block": True}, request=request))
    for acceptance, length in ((0.0, 1), (0.6, 4), (1.0, 8)):
        one = run.at(acceptance, length)
        tokens = one.model.block_efficiency
        assert one.seconds_by_part == pytest.approx(
            {"draft": 0.003 / tokens, "verify": 0.011 / tokens, "other": 0.001 / tokens}
        )
        assert sum(one.shares.values()) == pytest.approx(1)
        assert one.seconds_per_token == pytest.approx(0.010 / one.model.speedup)


def test_the_seconds_of_a_token_by_part_add_up_to_its_own():
    for lane in ran().lanes.values():
        parts = token_seconds_by_part(lane)
        assert sum(parts.values()) == pytest.approx(lane.seconds_per_token)


@pytest.mark.parametrize("threshold", [0.1, 0.33, 0.46, 0.8])
def test_evidence_that_is_looked_at_after_every_test_deceives_as_rarely_as_it_says(threshold):
    """Exactly, over all outcomes of 100 tests whose rate is the threshold: the evidence is 1 on
    average, and the share of races in which it ever reaches 20 is 5 % at most.
    """
    few = [
        comb(100, x)
        * threshold**x
        * (1 - threshold) ** (100 - x)
        * Acceptance(100, x).evidence_under(threshold)
        for x in range(101)
    ]
    assert sum(few) == pytest.approx(1)
    unconvinced, deceived = {0: 1.0}, 0.0  # chances, by how many were accepted
    for tested in range(1, 101):
        after: dict[int, float] = {}
        for accepted, chance in unconvinced.items():
            for now, share in ((accepted + 1, threshold), (accepted, 1 - threshold)):
                if Acceptance(tested, now).evidence_under(threshold) >= 20:
                    deceived += chance * share
                else:
                    after[now] = after.get(now, 0.0) + chance * share
        unconvinced = after
    assert 0 < deceived <= 0.05


def test_evidence_grows_with_rejections_and_is_no_less_where_nothing_could_pay():
    grown = [Acceptance(tested, 2).evidence_under(0.5) for tested in range(2, 40)]
    assert grown == sorted(grown)
    assert grown[0] < 1 < 100 < grown[-1]
    assert Acceptance(5, 5).evidence_under(1.0) == float("inf")


def test_the_costs_of_a_run_can_be_taken_in_favour_of_drafting():
    trace = timed(
        {
            "autoregressive": lambda step: {"verify_s": 0.010 + 0.001 * (step.index % 3)},
            "speculative": lambda step: {"verify_s": 0.012 + 0.001 * (step.index % 3)},
        },
        max_new_tokens=100,
    )
    usual, favoured = measured(trace), measured(trace, errors=2)
    assert usual == measured(trace, errors=0)
    assert favoured.cost < usual.cost
    assert favoured.break_even < usual.break_even


@given(spread=st.floats(0.01, 0.15), wider=st.floats(1.1, 2.0), seed=st.integers(0, 99))
def test_a_speedup_s_interval_holds_it_and_grows_with_the_unevenness(spread, wider, seed):
    """No end is beyond the tokens of a target pass. No step takes three medians, as interrupted."""

    def interval(spread):
        random = np.random.default_rng(seed)
        seconds = 0.01 * np.exp(spread * random.normal(size=400))

        def parts(step):
            return {"draft_s": 0.0, "verify_s": seconds[step.index], "other_s": 0.0}

        trace = timed({"autoregressive": parts, "speculative": parts}, max_new_tokens=60)
        low, high = speedup_interval(trace)
        assert low <= trace.speedup <= high <= trace.speculative.block_efficiency
        return trace.speedup / low

    assert interval(spread) < interval(spread * wider)


def test_without_both_lanes_there_is_no_cost_model():
    trace = ran()
    assert measured(trace)
    assert [measured(alone(trace, name)) for name in trace.lanes] == [None, None]
    nothing = {name: replace(lane, steps=()) for name, lane in trace.lanes.items()}
    assert measured(replace(trace, lanes=nothing)) is None
