"""The same requests under several conditions: the order, and what is computed of the answers."""

import pytest

from lab.answers import Condition, answered, tabulated
from lab.draft_lengths import LENGTHS, NONE, REPEATS, conditions
from pipeline.decoding.events import FinishReason
from pipeline.request import Request
from tests.fake_dolly import FakeDolly
from tests.served import PLAIN


def measured(dolly, requests=1, repeats=REPEATS, names=LENGTHS, **settings):
    asked = [Request(f"Say {number}", max_new_tokens=12, **settings) for number in range(requests)]
    compared = [each for each in conditions(dolly) if each.name in names]
    *_, result = answered(compared, asked, repeats)
    return result


def lengths(dolly):
    """The draft length of each answer, in their order."""
    traces = [run.trace() for run in dolly.started]
    return [str(trace.request["draft_length"]) if trace.speculative else NONE for trace in traces]


def test_every_condition_answers_as_often_and_none_always_first():
    dolly = FakeDolly(PLAIN)
    result = measured(dolly, temperature=0.7, seed=3)
    assert len(result.answers) == result.planned == REPEATS * len(LENGTHS)
    starts = range(0, len(result.answers), len(LENGTHS))
    repeats = [lengths(dolly)[at : at + len(LENGTHS)] for at in starts]
    assert [sorted(each) for each in repeats] == [sorted(LENGTHS)] * REPEATS
    assert len({each[0] for each in repeats}) == REPEATS
    assert {run.trace().request["seed"] for run in dolly.started} == {3}
    few = FakeDolly(PLAIN)
    measured(few, repeats=4, names=(NONE, "auto"))
    assert lengths(few) == [NONE, "auto", "auto", NONE, NONE, "auto", "auto", NONE]


def test_a_conditions_time_is_the_mean_over_requests_of_each_ones_median():
    dolly = FakeDolly(PLAIN)
    result = measured(dolly, requests=2, names=(NONE, "4"))
    traces = [run.trace() for run in dolly.started]
    times = {
        name: sorted(
            trace.speculative.seconds_per_token
            for trace in traces
            if trace.speculative and trace.request["instruction"] == name
        )
        for name in ("Say 0", "Say 1")
    }
    medians = [each[len(each) // 2] for each in times.values()]
    assert result.seconds_per_token("4") == pytest.approx(sum(medians) / 2)
    assert result.within({1}).seconds_per_token("4") == pytest.approx(medians[1])
    every = [time for each in times.values() for time in each]
    assert result.extremes("4") == (min(every), max(every))
    wanted = result.seconds_per_token(NONE) / result.seconds_per_token("4")
    assert result.speedup("4", NONE) == pytest.approx(wanted)


def test_rates_are_of_all_answers_together():
    dolly = FakeDolly(PLAIN)
    result = measured(dolly, requests=3, names=(NONE, "4"))
    lanes = [run.trace().speculative for run in dolly.started if run.trace().speculative]
    accepted, tested = (sum(getattr(lane, n) for lane in lanes) for n in ("accepted", "tested"))
    assert 0 < accepted < tested
    assert result.acceptance_rate("4") == accepted / tested
    assert result.acceptance_rate(NONE) is None
    assert result.block_efficiency(NONE) == 1
    passes = sum(len(lane.steps) for lane in lanes)
    assert result.block_efficiency("4") == sum(len(lane.tokens) for lane in lanes) / passes


def test_texts_are_identical_only_if_every_answer_to_the_request_is():
    same, other = FakeDolly(PLAIN), FakeDolly(PLAIN)
    asked = [Request("Say it", max_new_tokens=12, seed=seed) for seed in range(4)]
    greedy = [Condition("a", same, "autoregressive"), Condition("b", other)]
    *_, result = answered(greedy, asked, 1)
    assert result.identical("a", "b") == 1
    hot = [Condition("a", same, "autoregressive"), Condition("b", other, changes={"seed": 9})]
    asked = [Request("Say it", max_new_tokens=12, temperature=2.0, seed=seed) for seed in range(4)]
    *_, result = answered(hot, asked, 1)
    assert result.identical("a", "b") < 1


def test_closed_it_starts_no_more_and_ends_the_answer_under_way():
    dolly = FakeDolly(PLAIN)
    measuring = answered(conditions(dolly), [Request("Say something")], 1)
    result = next(measuring)
    assert (result.seconds_per_token(NONE), result.speedup("4", NONE)) == (None, None)
    assert (result.identical("4", NONE), result.block_efficiency("4")) == (None, None)
    while not (result := next(measuring)).answers:
        pass
    while len(dolly.started) < 2:
        result = next(measuring)
    measuring.close()
    assert len(result.answers) == 1
    assert len(dolly.started) == 2
    (lane,) = dolly.last_trace().lanes.values()
    assert lane.finish is FinishReason.CANCELLED


def test_the_table_is_computed_once_for_each_answer():
    dolly, computed = FakeDolly(PLAIN), []

    def rows(answers):
        computed.append(len(answers.answers))
        yield {"count": len(answers.answers)}

    asked = [Request("Say it", max_new_tokens=12)]
    results = [*tabulated(answered(conditions(dolly)[:2], asked, 2), rows, {"name": "fake"})]
    assert computed == [0, 1, 2, 3, 4]
    assert len(results) > 20
    assert [results[-1].rows, results[-1].pair] == [({"count": 4},), {"name": "fake"}]
    assert results[-1].complete
    assert {result.complete for result in results[:-1]} == {False}
    assert len({result.created for result in results}) == 1
