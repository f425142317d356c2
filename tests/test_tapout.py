"""The baseline of `lab.studies.tapout`: its bandit, its rules, and that it changes no text."""

from functools import partial

import numpy as np
import pytest

from lab.studies import tapout
from lab.studies.tapout import RULES, UCB1, Seen, TapOut, WatchedBlock, WatchedLM
from pipeline.decoding.decoders import Autoregressive, Speculative
from pipeline.decoding.drafters.block import BlockDrafter
from pipeline.decoding.drafters.model import ModelDrafter
from pipeline.decoding.events import Step
from pipeline.decoding.sampling import SamplingParams
from pipeline.decoding.verification.tokens import Draft
from tests.fakes import FakeBlock, FakeLM, verified

GREEDY = SamplingParams()


def seen(*probs: float) -> Seen:
    found = Seen()
    found.logits = np.log(np.array(probs, np.float32))
    return found


def test_the_bandit_comes_to_select_the_best_arm():
    rng, bandit, chances = np.random.default_rng(0), UCB1(3), (0.2, 0.8, 0.4)
    for _ in range(600):
        arm = bandit.select()
        bandit.update(arm, float(rng.random() < chances[arm]))
    assert bandit.pulls[1] > 400
    assert min(bandit.pulls) > 5  # it never stops looking


def test_what_the_rules_read_is_of_the_distribution():
    sure, torn = seen(0.97, 0.01, 0.01, 0.01), seen(0.4, 0.35, 0.15, 0.1)
    assert torn.entropy == pytest.approx(-sum(p * np.log(p) for p in (0.4, 0.35, 0.15, 0.1)))
    assert torn.margin == pytest.approx(0.05, abs=1e-6)
    assert sure.margin == pytest.approx(0.96, abs=1e-6)


@pytest.mark.parametrize("make", RULES)
def test_every_rule_goes_on_after_a_sure_token_and_ends_at_an_unsure_one(make):
    rule, even = make(), seen(*[1 / 400] * 400)
    for _ in range(300):  # drafts that failed: the bar of AdaEDL rises
        rule.observe(verified(_draft(4), accepted=0))
    assert not rule.stops(seen(0.99, 0.01), 0.99, 1)
    assert rule.stops(even, 1 / 400, 2)


def test_a_reward_is_half_of_what_was_possible_and_half_of_what_was_drafted():
    bandit = UCB1(1)
    policy = TapOut(bandit, [tapout.MaxConfidence()], Seen(), padded=False)
    policy.max_tokens(8, lambda count: None)
    policy.observe(verified(_draft(4), accepted=2), from_model=True)
    assert bandit._rewards == [(2 / 8 + 2 / 4) / 2]
    assert (policy.pad_to(3), TapOut(bandit, [], Seen(), padded=True).pad_to(3)) == (4, 9)


@pytest.mark.parametrize("block", [False, True])
def test_the_text_is_the_target_s_and_drafts_end_early(block):
    target, looks = FakeLM(7, 1), Seen()
    target.hidden = lambda token: [float(token)]
    draft = FakeLM(7, 2, like=FakeLM(7, 1), likeness=0.8)
    drafter = (
        BlockDrafter(WatchedBlock(FakeBlock(draft), looks), 7, frozenset())
        if block
        else ModelDrafter(WatchedLM(draft, looks), 7, frozenset())
    )
    bandit = UCB1(len(RULES))
    policy = partial(TapOut, bandit, [rule() for rule in RULES], looks, False)
    fast = [*Speculative(target, drafter, policy, frozenset()).generate([1, 2], GREEDY, 200)]
    slow = [*Autoregressive(FakeLM(7, 1), frozenset()).generate([1, 2], GREEDY, 200)]

    def text(events):
        return [token for event in events if isinstance(event, Step) for token in event.tokens]

    assert text(fast) == text(slow)
    drafted = [len(event.drafted) for event in fast if isinstance(event, Step)]
    assert len({*drafted[:-1]}) > 2
    assert sum(bandit.pulls) == sum(map(bool, drafted))
    assert min(bandit.pulls) > 0


def _draft(count):
    return Draft(tuple(range(count)))
