"""The economics of a round, its algebra by property; and the draft length that chooses itself."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.decoding.draft_length import Auto, Fixed
from pipeline.decoding.economics import (
    AcceptanceRate,
    AcceptanceStats,
    CostModel,
    Costs,
    best_length,
    expected_tokens,
)
from pipeline.decoding.verification.tokens import Draft
from tests.fakes import verified

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


POWERS = st.lists(st.floats(0.2, 5), min_size=1, max_size=8)


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


@given(models(), POWERS)
def test_with_an_acceptance_at_each_place_the_yield_is_the_sum_over_them(model, powers):
    """A perfect draft is perfect at every place, and a useless one useless."""
    model = replace(model, powers=powers)
    chances = [model.acceptance ** powers[min(i, len(powers) - 1)] for i in range(model.length)]
    assert model.block_efficiency == pytest.approx(expected_tokens(chances)[-1])
    assert replace(model, acceptance=1.0).block_efficiency == model.length + 1
    assert replace(model, acceptance=0.0).block_efficiency == 1


@given(models())
def test_where_nothing_is_drafted_one_token_would_have_to_pay(model):
    none, one = (replace(model, length=length) for length in (0, 1))
    assert none.break_even == one.break_even


@given(models())
def test_the_cost_is_that_of_the_paper_with_verification_at_its_price(model):
    assert model.cost == pytest.approx(1 + model.length * model.draft + model.verify)
    assert replace(model, length=0).speedup == 1


@given(models(), POWERS)
def test_at_break_even_a_round_costs_what_it_yields(model, powers):
    model = replace(model, powers=powers)
    even = model.break_even
    if even is None:  # then even a perfect draft loses
        assert model.length + 1 < model.cost
        return
    if even > 1e-3:  # below, the yield is too steep for its precision
        assert replace(model, acceptance=even).block_efficiency == pytest.approx(model.cost)
    if abs(model.acceptance - even) > 1e-6:
        assert (model.speedup > 1) == (model.acceptance > even)


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


def stats(draft=0.1):
    return AcceptanceStats(Costs(draft, (1.0,) * 9))


def test_a_position_that_was_never_tested_is_taken_for_the_one_before_it():
    known = stats()
    for _ in range(200):
        known.update(2, 2, [0.9, 0.9])
    first, second, third, *_ = known.by_position()
    assert first > 0.9
    assert second == pytest.approx(third)


def test_what_a_draft_reached_when_it_was_made_is_assumed_until_tests_say_otherwise():
    known = AcceptanceStats(Costs(0.1, (1.0,) * 9), (0.9, 0.7))
    assert known.by_position() == pytest.approx([0.9] + [0.7] * 7)
    for _ in range(200):
        known.update(0, 8, [])
    assert known.by_position()[0] < 0.2
    assert len(AcceptanceStats(Costs(0.1, (1.0,) * 3), (0.9,) * 8).by_position()) == 2


@pytest.mark.parametrize(("chances", "reached"), [("easy", 0.95), ("middling", 0.7)])
def test_it_spares_a_first_answer_the_finding_out(chances, reached):
    costs, text = pair(0.2), CHANCES[chances]
    informed = mean(lambda: auto(costs, AcceptanceStats(costs, (reached,) * 8)), costs, text)
    assert informed < mean(lambda: auto(costs), costs, text)


def test_tokens_after_the_first_rejection_teach_nothing():
    known, other = stats(), stats()
    known.update(1, 2, [0.95, 0.45])
    other.update(1, 8, [0.95, 0.45, 0.95, 0.95])
    assert known.by_position() == other.by_position()
    assert known.by_confidence(0.95) == other.by_confidence(0.95) > 0.95


@pytest.mark.parametrize("drafted", [1, 4])
@pytest.mark.parametrize("of", ["draft", "block_draft"])
def test_the_cost_of_a_draft_follows_recent_rounds_and_of_a_block_whatever_its_length(of, drafted):
    known = AcceptanceStats(replace(Costs(0.0, (1.0,) * 9), **{of: 0.1}))
    known.update_draft_cost(drafted, draft_s=100.0, verify_s=1.0, pad_to=3)
    assert getattr(known.costs, of) == pytest.approx(0.11)  # a single one changes little
    for _ in range(100):
        known.update_draft_cost(drafted, draft_s=0.6, verify_s=2.0, pad_to=3)
    shared = drafted if of == "draft" else 1
    assert getattr(known.costs, of) == pytest.approx(0.3 / shared, rel=0.01)
    assert known.costs.draft * known.costs.block_draft == 0


LONGEST = 8


def nothing(count):
    """The forecast of a drafter that does not copy."""


def simulate(chooser, costs, chances, tokens=100, seed=0):
    """Seconds for `tokens`, at a chance of passing that is drawn for each position of the text.

    Not a model: a clock and coins, to test the choice alone. The confidence is the chance itself.
    """
    rng = np.random.default_rng(seed)
    text = rng.choice(chances, size=tokens + LONGEST + 1)
    coins = rng.random(tokens + LONGEST + 1)
    seconds, made, padded = 0.0, 0, 0
    while made < tokens:
        drafted, accepted, before = 0, 0, padded
        for place in range(made, made + chooser.max_tokens(LONGEST, nothing)):
            drafted += 1
            if chooser.should_continue and not chooser.should_continue(float(text[place])):
                break
        draft_s = costs.draft * drafted
        padded = chooser.pad_to(drafted)
        drafted = min(drafted, padded - 1)
        while accepted < drafted and coins[made + accepted] < text[made + accepted]:
            accepted += 1
        verify_s = costs.verify[padded - 1] + costs.switch * (before not in (0, padded))
        step = verified(Draft((0,) * drafted), accepted, draft_s, verify_s)
        chooser.observe(step, from_model=True)
        seconds += step.seconds
        made += accepted + 1
    return seconds * tokens / made  # what went past the budget is not charged


def pair(draft, slope=0.03, switch=0.5):
    """A forward pass of one token takes one second; another size than the last, half a one more."""
    return Costs(draft, tuple(1 + slope * extra for extra in range(LONGEST + 1)), switch)


def auto(costs, stats=None):
    return Auto(stats or AcceptanceStats(costs))


def mean(make, costs, chances, runs=40):
    return float(np.mean([simulate(make(), costs, chances, seed=seed) for seed in range(runs)]))


CHANCES = {
    "certain": [1.0],
    "easy": [0.95],
    "middling": [0.7],
    "hard": [0.3],
    "uneven": [0.98, 0.98, 0.98, 0.4],
    "useless": [0.0],
}


@pytest.mark.parametrize("chances", CHANCES)
@pytest.mark.parametrize("draft", [0.02, 0.2, 1.0])
def test_it_is_near_the_best_fixed_length(draft, chances):
    """When it has seen one generation; the first is spent on finding out."""
    costs, text = pair(draft), CHANCES[chances]
    best = min(mean(lambda k=k: Fixed(k), costs, text) for k in range(LONGEST + 1))
    stats = AcceptanceStats(costs)
    simulate(auto(costs, stats), costs, text, tokens=100, seed=1000)
    assert mean(lambda: auto(costs, stats), costs, text) < 1.06 * best
    assert mean(lambda: auto(costs), costs, text) < 1.2 * best


def test_a_gain_within_the_noise_is_not_drafted_for():
    """Every draft passed so far: 8.9 tokens are expected, for 8.7 steps of time or for 8.0."""
    for draft, drafts in ((0.93, False), (0.85, True)):
        stats = AcceptanceStats(pair(draft))
        for _ in range(100):
            stats.update(LONGEST, LONGEST, [1.0] * LONGEST)
        assert (auto(pair(draft), stats).max_tokens(LONGEST, nothing) > 0) == drafts


def test_what_is_copied_says_nothing_of_what_a_model_takes_to_draft():
    stats = AcceptanceStats(pair(0.1))
    chooser, copied = Auto(stats), (0,) * 4
    for from_model in [False] * 60 + [True]:
        chooser.max_tokens(LONGEST, nothing)
        chooser.pad_to(len(copied))
        step = verified(Draft(copied), 4, draft_s=1e-6, verify_s=1.1)
        assert stats.costs.draft == 0.1
        chooser.observe(step, from_model)
    assert stats.costs.draft < 0.1


def test_a_copy_is_as_long_as_it_is_foreseen_to_pay():
    """Whatever a model's drafts were worth before."""
    stats = AcceptanceStats(pair(0.5))
    for _ in range(30):
        stats.update(0, 2, [])
    chooser = Auto(stats)
    assert chooser.max_tokens(LONGEST, nothing) == 0
    assert chooser.max_tokens(LONGEST, lambda count: [0.95] * count) == LONGEST
    assert chooser.pad_to(LONGEST) == LONGEST + 1
    assert chooser.max_tokens(3, lambda count: [0.95] * count) == 3
    assert chooser.max_tokens(LONGEST, lambda count: [0.01] * count) == 0


def test_a_pass_of_another_size_must_pay_at_once():
    """One round is copied, and the next may not be; the switch is there and back."""
    for switch, length in ((0.0, 3), (0.5, 3), (2.0, 0)):
        chooser = auto(pair(0.5, switch=switch))
        assert chooser.max_tokens(LONGEST, lambda count: [0.8] * 3) == length
        assert chooser.pad_to(length) == length + 1


def test_a_run_of_copies_shares_the_switch_to_a_longer_pass():
    """What a single copy does not pay for, the third in a row does; one miss ends the run."""
    chooser = auto(pair(0.5, switch=2.0))
    copied = [0.8] * 3

    def lengths(found):
        return [chooser.max_tokens(LONGEST, lambda count, got=got: got) for got in found]

    assert lengths([copied, copied, copied]) == [0, 0, 3]
    assert lengths([None, copied, [], copied])[1::2] == [0, 0]


def test_where_nothing_is_found_for_long_passes_are_not_padded():
    chooser, pads = auto(pair(0.0)), []
    for found in [3] + 6 * [0]:
        length = chooser.max_tokens(LONGEST, lambda count, found=found: [0.9] * found)
        assert length == found
        pads.append(chooser.pad_to(length))
        chooser.observe(verified(Draft((0,) * length)), from_model=False)
    assert pads == [4, 4, 4, 4, 4, 1, 1]


def test_the_end_of_the_budget_teaches_nothing():
    """With no budget to draft, nothing was tested."""
    stats = AcceptanceStats(pair(0.1))
    chooser = Auto(stats)
    assert chooser.max_tokens(3, nothing) == 3
    assert chooser.pad_to(0) > 1
    before = stats.by_position()
    assert chooser.max_tokens(0, nothing) == 0
    chooser.pad_to(0)
    chooser.observe(verified(Draft()), from_model=False)
    assert stats.by_position() == before


def test_a_draft_that_no_longer_pays_is_tried_again_also_in_a_pass_that_is_padded():
    """A single token is padded to two, so the pass stays as it is while nothing is drafted."""
    costs = Costs(0.35, (1.0, 1.0, *[1.05] * 7))
    stats = AcceptanceStats(costs)
    chooser = Auto(stats)
    assert chooser.max_tokens(LONGEST, nothing) == 1
    for _ in range(100):
        stats.update(0, 1, [0.5])
    before = stats.by_position()[0]
    for _ in range(50):
        assert chooser.max_tokens(LONGEST, nothing) == 0
        assert chooser.pad_to(0) == 2
        chooser.observe(verified(Draft()), from_model=False)
    assert stats.by_position()[0] > before


def test_a_round_that_drafts_less_is_padded_to_the_size_of_the_others():
    """Another size costs more than some padding."""
    fixed = Fixed(4)
    assert [fixed.pad_to(drafted) for drafted in (4, 2, 0, 4)] == [5, 5, 5, 5]
    assert [fixed.pad_to(0) for _ in range(9)][-1] == 1
    assert fixed.pad_to(1) == 5
