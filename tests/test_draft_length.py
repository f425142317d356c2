"""A draft length that chooses itself: near the best fixed one, and never much of a loss."""

import numpy as np
import pytest

from pipeline.decoding.draft_length import Auto, Fixed
from pipeline.decoding.economics import AcceptanceStats, Costs
from pipeline.decoding.events import Origin, Step

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
        step = Step(
            index=0,
            tokens=(0,) * (accepted + 1),
            origins=(Origin.TARGET,) * (accepted + 1),
            draft_s=draft_s,
            verify_s=costs.verify[padded - 1] + costs.switch * (before not in (0, padded)),
            other_s=0.0,
            drafted=(0,) * drafted,
            accepted=accepted,
        )
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
    "easy": [0.95],
    "middling": [0.7],
    "hard": [0.3],
    "uneven": [0.98, 0.98, 0.98, 0.4],
}


@pytest.mark.parametrize("chances", CHANCES)
@pytest.mark.parametrize("draft", [0.02, 0.1, 0.2, 0.3])
def test_it_is_near_the_best_fixed_length(draft, chances):
    """When it has seen one generation; the first is spent on finding out."""
    costs, text = pair(draft), CHANCES[chances]
    best = min(mean(lambda k=k: Fixed(k), costs, text) for k in range(LONGEST + 1))
    stats = AcceptanceStats(costs)
    simulate(auto(costs, stats), costs, text, tokens=100, seed=1000)
    assert mean(lambda: auto(costs, stats), costs, text) < 1.06 * best
    assert mean(lambda: auto(costs), costs, text) < 1.2 * best


@pytest.mark.parametrize("draft", [0.02, 0.2, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("chance", [0.0, 0.1])
def test_a_useless_draft_costs_next_to_nothing(draft, chance):
    costs = pair(draft)
    stats = AcceptanceStats(costs)
    seconds = [simulate(auto(costs, stats), costs, [chance], seed=seed) for seed in range(40)]
    assert np.mean(seconds) < 100 / 0.97


def test_a_step_in_the_cost_of_verifying_is_no_wall():
    """Two tokens in one pass are cheap, and three cost as much as nine: as measured on a CPU."""
    costs = Costs(0.15, (1.0, 1.0, *[1.5] * 7))
    assert mean(lambda: auto(costs), costs, [0.95]) < 1.1 * mean(lambda: Fixed(8), costs, [0.95])


class Watched(Auto):
    """Keeps how many tokens each round drafted."""

    def __init__(self, stats):
        super().__init__(stats)
        self.drafted = []

    def observe(self, step, from_model):
        self.drafted.append(len(step.drafted))
        super().observe(step, from_model)


@pytest.mark.parametrize("draft", [0.05, 0.1, 0.2, 0.3])
def test_where_every_draft_is_accepted_it_goes_on_to_the_longest(draft):
    """Before any test it drafts 1 to 3 tokens, and longer drafts are never tested by those."""
    costs = pair(draft)
    chooser = Watched(AcceptanceStats(costs))
    simulate(chooser, costs, [1.0], tokens=200)
    assert chooser.drafted[0] <= 3
    assert chooser.drafted == sorted(chooser.drafted)
    assert set(chooser.drafted[10:30]) == {LONGEST}


def test_a_draft_as_slow_as_the_target_is_never_tried():
    assert auto(pair(1.0)).max_tokens(LONGEST, nothing) == 0
    assert auto(pair(0.1)).max_tokens(LONGEST, nothing) > 1


def test_a_gain_within_the_noise_is_not_drafted_for():
    """Every draft passed so far: 8.9 tokens are expected, for 8.7 steps of time or for 8.0."""
    for draft, drafts in ((0.93, False), (0.85, True)):
        stats = AcceptanceStats(pair(draft))
        for _ in range(100):
            stats.update(LONGEST, LONGEST, [1.0] * LONGEST)
        assert (auto(pair(draft), stats).max_tokens(LONGEST, nothing) > 0) == drafts


def test_a_few_rejections_at_first_do_not_end_all_drafting():
    stats = AcceptanceStats(pair(0.2))
    for _ in range(3):
        stats.update(0, 1, [0.5])
    assert auto(pair(0.2), stats).max_tokens(LONGEST, nothing) > 0


def test_what_was_lost_is_tried_again_after_a_while():
    chooser, costs = auto(pair(0.2)), pair(0.2)
    simulate(chooser, costs, [0.0], tokens=60)
    assert simulate(chooser, costs, [0.95], tokens=600) < 400


def test_measured_times_replace_those_of_the_warm_up():
    """Warmed beside other work, which made drafting look twenty times as expensive as it is."""
    chooser, now = auto(pair(0.4)), pair(0.02)
    simulate(chooser, now, [0.95], tokens=200)
    assert simulate(chooser, now, [0.95], tokens=200) < 1.1 * simulate(Fixed(8), now, [0.95], 200)


def test_what_is_copied_says_nothing_of_what_a_model_takes_to_draft():
    stats = AcceptanceStats(pair(0.1))
    chooser, copied = Auto(stats), (0,) * 4
    for from_model in [False] * 60 + [True]:
        chooser.max_tokens(LONGEST, nothing)
        chooser.pad_to(len(copied))
        step = Step(
            index=0,
            tokens=(*copied, 1),
            origins=(Origin.ACCEPTED,) * 5,
            draft_s=1e-6,
            verify_s=1.1,
            other_s=0.0,
            drafted=copied,
            accepted=4,
        )
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
        chooser.observe(rejected(length), from_model=False)
    assert pads == [4, 4, 4, 4, 4, 1, 1]


def rejected(drafted):
    return Step(
        index=0,
        tokens=(1,),
        origins=(Origin.RESAMPLED if drafted else Origin.TARGET,),
        draft_s=0.0,
        verify_s=1.0,
        other_s=0.0,
        drafted=(0,) * drafted,
    )


def test_the_end_of_the_budget_teaches_nothing():
    """With no budget to draft, nothing was tested."""
    stats = AcceptanceStats(pair(0.1))
    chooser = Auto(stats)
    assert chooser.max_tokens(3, nothing) == 3
    assert chooser.pad_to(0) > 1
    before = stats.by_position()
    assert chooser.max_tokens(0, nothing) == 0
    chooser.pad_to(0)
    step = Step(
        index=0, tokens=(1,), origins=(Origin.TARGET,), draft_s=0.0, verify_s=1.0, other_s=0.0
    )
    chooser.observe(step, from_model=False)
    assert stats.by_position() == before


def test_a_round_that_drafts_less_is_padded_to_the_size_of_the_others():
    """Another size costs more than some padding."""
    fixed = Fixed(4)
    assert [fixed.pad_to(drafted) for drafted in (4, 2, 0, 4)] == [5, 5, 5, 5]
    assert [fixed.pad_to(0) for _ in range(9)][-1] == 1
    assert fixed.pad_to(1) == 5
