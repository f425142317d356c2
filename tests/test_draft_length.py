"""A draft length that chooses itself: near the best fixed one, and never much of a loss."""

import numpy as np
import pytest

from pipeline.costs import Costs
from pipeline.draft_length import Auto, Fixed
from pipeline.events import Origin, Step

LONGEST = 8


def simulate(chooser, costs, chances, tokens=100, seed=0):
    """Seconds for `tokens`, at a chance of passing that is drawn for each position of the text.

    Not a model: a clock and coins, to test the choice alone. The confidence is the chance itself.
    """
    rng = np.random.default_rng(seed)
    text = rng.choice(chances, size=tokens + LONGEST + 1)
    coins = rng.random(tokens + LONGEST + 1)
    seconds, made = 0.0, 0
    while made < tokens:
        drafted, accepted = 0, 0
        for place in range(made, made + chooser.most()):
            drafted += 1
            if chooser.go_on and not chooser.go_on(float(text[place])):
                break
        while accepted < drafted and coins[made + accepted] < text[made + accepted]:
            accepted += 1
        step = Step(
            0,
            (0,) * (accepted + 1),
            (Origin.TARGET,) * (accepted + 1),
            draft_s=costs.draft * drafted,
            verify_s=costs.verify[drafted],
            other_s=0.0,
            drafted=(0,) * drafted,
            accepted=accepted,
        )
        chooser.learn(step)
        seconds += step.seconds
        made += accepted + 1
    return seconds * tokens / made  # what went past the budget is not charged


def pair(draft, slope=0.05):
    """A target run of one token takes one second."""
    return Costs(draft, tuple(1 + slope * extra for extra in range(LONGEST + 1)))


def mean(make, costs, chances, runs=40):
    return float(np.mean([simulate(make(), costs, chances, seed=seed) for seed in range(runs)]))


CHANCES = {
    "easy": [0.95],
    "middling": [0.7],
    "hard": [0.3],
    "uneven": [0.98, 0.98, 0.98, 0.4],
}


@pytest.mark.parametrize("chances", CHANCES)
@pytest.mark.parametrize("draft", [0.02, 0.1, 0.2, 0.3, 0.4])
def test_it_is_near_the_best_fixed_length(draft, chances):
    costs, text = pair(draft), CHANCES[chances]
    best = min(mean(lambda k=k: Fixed(k), costs, text) for k in range(LONGEST + 1))
    assert mean(lambda: Auto(costs), costs, text) < 1.05 * best


@pytest.mark.parametrize("draft", [0.02, 0.2, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("chance", [0.0, 0.1])
def test_a_useless_draft_costs_next_to_nothing(draft, chance):
    costs = pair(draft)
    seconds = [simulate(Auto(costs), costs, [chance], seed=seed) for seed in range(40)]
    assert np.mean(seconds) < 100 / 0.97


def test_a_step_in_the_cost_of_verifying_is_no_wall():
    """Two tokens in one run are cheap here, and three as dear as nine: as measured on a CPU."""
    costs = Costs(0.15, (1.0, 1.0, *[1.5] * 7))
    assert mean(lambda: Auto(costs), costs, [0.95]) < 1.05 * mean(lambda: Fixed(8), costs, [0.95])


def test_a_draft_as_slow_as_the_target_is_never_tried():
    assert Auto(pair(1.0)).most() == 0
    assert Auto(pair(0.1)).most() == LONGEST


def test_what_was_lost_is_tried_again_when_credit_has_grown():
    chooser, costs = Auto(pair(0.2)), pair(0.2)
    simulate(chooser, costs, [0.0], tokens=60)
    assert simulate(chooser, costs, [0.95], tokens=400) < 250


def test_measured_times_replace_those_of_the_warm_up():
    """Warmed beside other work, which made drafting look fifty times as dear as it is."""
    chooser, now = Auto(pair(0.9)), pair(0.02)
    simulate(chooser, now, [0.95], tokens=200)
    assert simulate(chooser, now, [0.95], tokens=200) < 1.1 * simulate(Fixed(8), now, [0.95], 200)


def test_drafts_that_cost_nothing_to_make_are_always_tried():
    """A look-up's, however slow the pair's draft model is."""
    assert Auto(pair(0.0)).most() == LONGEST
    assert simulate(Auto(pair(0.0)), pair(0.0), [0.95]) < 30
