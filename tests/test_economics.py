"""The economics of a round: its algebra by property, its estimates against plain sums."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.decoding.economics import (
    PRIOR_ACCEPTANCE,
    AcceptanceRate,
    AcceptanceStats,
    CostModel,
    Costs,
    best_length,
    expected_tokens,
)

LENGTHS = range(9)
CHANCE = st.floats(0, 1)
COST = st.floats(0.001, 10)


@st.composite
def costs(draw):
    verify = tuple(draw(st.lists(COST, min_size=1, max_size=9)))
    return Costs(draw(st.floats(0, 3)), verify, draw(st.floats(0, 3)), draw(st.floats(0, 3)))


@st.composite
def models(draw):
    verify = (1.0, *draw(st.lists(st.floats(0.8, 2.5), min_size=1, max_size=8)))
    return CostModel(draw(CHANCE), Costs(draw(st.floats(0, 0.6)), verify), draw(st.integers(1, 8)))


@given(costs())
def test_in_steps_an_autoregressive_step_costs_one(given_costs):
    steps = given_costs.in_steps
    assert steps.verify[0] == pytest.approx(1)
    unit = given_costs.verify[0]
    assert [cost * unit for cost in steps.verify] == pytest.approx(given_costs.verify)
    assert steps.draft * unit == pytest.approx(given_costs.draft)
    assert steps.switch * unit == pytest.approx(given_costs.switch)
    assert steps.block_draft * unit == pytest.approx(given_costs.block_draft)


@given(costs(), st.integers(0, 12), st.integers(0, 12))
def test_a_round_costs_its_drafting_and_one_forward_pass(given_costs, drafted, pad_to):
    """Of the drafted tokens and one more, or of what they are padded to; a pass longer than any
    measured costs as much as the longest.
    """
    tokens = max(drafted + 1, pad_to)
    verify = given_costs.verify[min(tokens, len(given_costs.verify)) - 1]
    block = given_costs.block_draft if drafted else 0
    assert given_costs.of_round(drafted, pad_to) == block + drafted * given_costs.draft + verify


@given(st.lists(CHANCE, max_size=8))
def test_expected_tokens_are_one_more_than_are_expected_to_be_accepted(acceptance):
    tokens = expected_tokens(acceptance)
    assert len(tokens) == len(acceptance) + 1
    for length, expected in enumerate(tokens):
        total, reached = 1.0, 1.0
        for chance in acceptance[:length]:
            reached *= chance
            total += reached
        assert expected == pytest.approx(total)


@given(st.lists(CHANCE, min_size=8, max_size=8), costs(), st.integers(0, 9), st.floats(0, 3))
def test_the_best_length_is_the_one_that_a_search_finds(acceptance, given_costs, pad_to, floor):
    tokens = expected_tokens(acceptance)
    rates = [tokens[k] / given_costs.of_round(k, pad_to) for k in LENGTHS]
    length, rate = best_length(tokens, given_costs, LENGTHS, pad_to, floor)
    if max(rates) <= floor:
        assert (length, rate) == (0, floor)
    else:
        assert (length, rate) == (rates.index(max(rates)), max(rates))


@given(models())
def test_the_yield_is_the_closed_form(model):
    a, k = model.acceptance, model.length
    if a < 0.999:  # where the closed form is not 0 / 0
        assert model.block_efficiency == pytest.approx((1 - a ** (k + 1)) / (1 - a))
    assert replace(model, acceptance=1.0).block_efficiency == k + 1


@given(models())
def test_the_cost_is_that_of_the_paper_with_verification_at_its_price(model):
    assert model.cost == pytest.approx(1 + model.length * model.draft + model.verify)
    assert replace(model, length=0).speedup == 1


@given(models())
def test_at_break_even_a_round_costs_what_it_yields(model):
    even = model.break_even
    if even is None:  # then even a perfect draft loses
        assert model.length + 1 < model.cost
        return
    if even > 1e-6:
        assert replace(model, acceptance=even).block_efficiency == pytest.approx(model.cost)
    if abs(model.acceptance - even) > 1e-6:
        assert (model.speedup > 1) == (model.acceptance > even)


@given(models())
def test_the_best_length_of_a_model_gains_most(model):
    best = model.best_length(LENGTHS)
    speedups = [replace(model, length=k).speedup for k in LENGTHS]
    assert speedups[best] == pytest.approx(max(speedups))


def test_what_is_never_accepted_is_best_not_drafted():
    model = CostModel(0.0, Costs(0.1, (1.0, 1.1)), 4)
    assert model.best_length(LENGTHS) == 0


@pytest.mark.parametrize(
    ("acceptance", "draft", "verify", "worst"),
    [(0.2, 0.1, 0.1, "acceptance"), (0.95, 0.9, 0.1, "draft"), (0.95, 0.05, 3.0, "verify")],
)
def test_the_worst_part_is_the_one_whose_ideal_gains_most(acceptance, draft, verify, worst):
    model = CostModel(acceptance, Costs(draft, (1.0, 1 + verify)), length=4)
    assert model.worst_part() == worst


@given(st.lists(st.booleans(), max_size=30), CHANCE, st.floats(0.1, 5))
def test_a_rate_is_the_share_of_tests_beside_the_prior(tests, prior, weight):
    rate = AcceptanceRate()
    for accepted in tests:
        rate.add(accepted, 1)
    expected = (sum(tests) + weight * prior) / (len(tests) + weight)
    assert rate.estimate(prior, weight) == pytest.approx(expected)


def test_a_decayed_rate_returns_to_its_prior():
    rate = AcceptanceRate()
    rate.add(50, 50)
    for _ in range(200):
        rate.decay(0.9)
    assert rate.estimate(0.3) == pytest.approx(0.3, abs=0.001)


def stats(draft=0.1):
    return AcceptanceStats(Costs(draft, (1.0,) * 9))


def test_before_any_test_the_prior_holds_at_each_position():
    assert stats().by_position() == pytest.approx([PRIOR_ACCEPTANCE] * 8)


def test_a_position_that_was_never_tested_is_taken_for_the_one_before_it():
    known = stats()
    for _ in range(200):
        known.update(2, 2, [0.9, 0.9])
    first, second, third, *_ = known.by_position()
    assert first > 0.9
    assert second == pytest.approx(third)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=40))
def test_estimates_are_chances(rounds):
    known = stats()
    for accepted, drafted in rounds:
        known.update(min(accepted, drafted), drafted, [0.5] * drafted)
        known.decay()
    assert all(0 <= chance <= 1 for chance in known.by_position())
    assert all(0 <= known.by_confidence(tenth / 20) <= 1 for tenth in range(21))


def test_tokens_after_the_first_rejection_teach_nothing():
    known, other = stats(), stats()
    known.update(1, 2, [0.95, 0.45])
    other.update(1, 8, [0.95, 0.45, 0.95, 0.95])
    assert known.by_position() == other.by_position()
    assert known.by_confidence(0.95) == other.by_confidence(0.95) > 0.95


def test_a_single_measurement_changes_the_cost_of_drafting_little():
    known = stats(draft=0.1)
    known.update_draft_cost(1, draft_s=100.0, verify_s=1.0, pad_to=3)
    assert known.costs.draft == pytest.approx(0.11)
    for _ in range(100):
        known.update_draft_cost(1, draft_s=0.6, verify_s=2.0, pad_to=3)
    assert known.costs.draft == pytest.approx(0.3, rel=0.01)


@pytest.mark.parametrize("drafted", [1, 4])
def test_a_block_costs_what_its_round_took_however_many_tokens(drafted):
    known = AcceptanceStats(Costs(0.0, (1.0,) * 9, block_draft=0.1))
    for _ in range(100):
        known.update_draft_cost(drafted, draft_s=0.6, verify_s=2.0, pad_to=3)
    assert known.costs.block_draft == pytest.approx(0.3, rel=0.01)
    assert known.costs.draft == 0
