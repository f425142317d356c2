"""What happened to a token and to a round, in words."""

import json
from dataclasses import replace

import pytest

from pipeline.decoding.events import Origin
from pipeline.trace.explanation import drafting, explain, explanations, probability, quoted
from pipeline.trace.record import StepRecord, Token
from tests.traces import STRANGE, ran

WORDS = {5: " sea", 6: " is", 7: " sky", 8: " blue", 9: " why"}
STEP = StepRecord(
    index=2,
    drafted=(5, 6, 7, 8),
    accepted=2,
    draft_s=0.002,
    verify_s=0.01,
    other_s=0.0,
    time_s=0.1,
    draft_prob=(0.5, 0.5, 0.25, 0.5),
    target_prob=(0.5, 0.6, 0.0001, 0.5),
    accept_prob=(1.0, 0.9, 0.0004, 1.0),
    uniform=(None, 0.3, 0.75, None),
)
COPIED = {"target_top": (((5, 1.0),),)}  # and no likeliest of a draft


def emitted(*origins):
    return tuple(
        Token(token, WORDS[token], Origin(origin), 2, 0.1)
        for token, origin in zip((5, 6, 9), origins, strict=False)
    )


def explained(origins=("accepted", "accepted", "resampled"), lane="speculative", run=None, **step):
    trace = ran(max_new_tokens=5, **{"temperature": 1.0, **(run or {})})
    trace = replace(trace, pieces=WORDS)
    return explain(trace, lane, replace(STEP, **step), emitted(*origins))


UNDRAFTED = {"drafted": (), "accepted": 0}
GREEDY = {"temperature": 0.0}
BLOCK = {"verification": "block"}
LOSSY = {"verification": "typical"}
REASONS = [  # of a token: its place, what differs, and words of its reason
    (0, {}, "always accepted"),
    (1, {}, "is below min(1, p ∕ q)"),
    (2, {}, "failed the acceptance test"),
    (3, {}, "never tested"),
    (0, {"run": GREEDY}, "first choice of both models"),
    (2, {"run": GREEDY}, "Not the target’s first choice."),
    (4, {"run": GREEDY}, "first choice"),
    (0, {"run": GREEDY, **COPIED}, "The target’s first choice, so"),
    (0, {"run": BLOCK}, "up to a later token"),
    (1, {"run": BLOCK}, "accepted the draft up to here"),
    (2, {"run": BLOCK}, "up to an earlier token only"),
    (4, {"run": BLOCK}, "times the probability that the draft is kept so far"),
    (1, {"run": LOSSY}, "lossy"),
    (4, {"run": LOSSY}, "lossy"),
    (2, {"origins": ("accepted", "accepted", "bonus"), "drafted": (5, 6)}, "All 2 drafted tokens"),
    (1, {"origins": ("accepted", "bonus"), "drafted": (5,), "accepted": 1}, "The drafted token is"),
    (0, {"origins": ("target",), **UNDRAFTED}, "No token was drafted"),
    (0, {"origins": ("target",), "lane": "autoregressive", **UNDRAFTED}, "one token"),
    (0, {"origins": ("remembered",) * 2 + ("resampled",), **COPIED}, "in an earlier answer"),
]


def test_what_cannot_be_seen_or_turns_the_direction_is_escaped_and_a_long_text_is_cut():
    assert quoted(' "a"\n') == r'" \"a\"\n"'
    assert quoted("zero\u200bwidth\u202e\u00a0") == r'"zero\u{200b}width\u{202e}\u{a0}"'
    assert quoted("é" * 61) == f'"{"é" * 60}…" (61 characters)'


def test_the_tokens_are_all_that_was_drafted_or_emitted_in_their_order():
    def states(*origins, **settings):
        tokens = explained(*([origins] if origins else []), **settings).tokens
        return [(token.state, token.place, token.name) for token in tokens]

    kept = [("accepted", 0, '" sea"'), ("accepted", 1, '" is"')]
    assert states() == [
        *kept,
        ("rejected", 2, '" sky"'),
        ("untested", 3, '" blue"'),
        ("resampled", 2, '" why"'),
    ]
    last = [state for state, _, _ in states(run=BLOCK)][2:4]
    assert last == ["rejected", "rejected"]
    assert [state for state, _, _ in states(run=BLOCK, **COPIED)][2:4] == ["rejected", "untested"]
    ended = states("accepted", accepted=4)  # the text, within the draft
    assert [state for state, _, _ in ended] == ["accepted", *["untested"] * 3]


def test_a_sampled_test_shows_p_q_the_chance_and_the_number_with_the_same_digits():
    *_, resampled = explained().tokens
    assert resampled.sentence.startswith('" why" replaces the drafted " sky": draft probability q')
    assert resampled.facts == {
        "replaces the drafted": '" sky"',
        "draft probability q": "0.250",
        "target probability p": "< 0.001",
        "accepted with min(1, p ∕ q)": "< 0.001",
        "random number": "0.750 → rejected",
    }
    certain, tried, *_ = explained().tokens
    assert tried.facts["random number"] == "0.300 → accepted"
    assert "random number" not in certain.facts  # there was none
    assert [probability(value) for value in (0, 0.0004, 0.0005, 1)] == [
        *("0.000", "< 0.001", "0.001", "1.000")
    ]


@pytest.mark.parametrize(("place", "changes", "words"), REASONS)
def test_every_origin_has_its_reason(place, changes, words):
    assert words in explained(**changes).tokens[place].reason


def test_greedy_decoding_invents_no_number():
    tokens = explained(run=GREEDY).tokens
    assert [token.facts for token in tokens] == [{}] * 4 + [{"replaces the drafted": '" sky"'}]
    assert "random" not in " ".join(token.reason for token in tokens)


def test_the_facts_are_those_of_the_way_to_verify():
    deciding = explained(run=BLOCK).tokens[1].facts
    assert deciding["accepted up to here, if not further"] == "0.900"
    typical = explained(run=LOSSY).tokens[1].facts
    assert [*typical.items()][-1] == ("p is typical of the target", "yes")
    assert "random number" not in typical


@pytest.mark.parametrize(
    ("block", "count", "copied", "how"),
    [
        (False, 4, False, "4 tokens were drafted, each in a pass of its own"),
        (False, 1, False, "1 token was drafted, in a pass of its own"),
        (True, 4, False, "4 tokens were drafted, in one pass"),
        (True, 4, True, "4 tokens were drafted, by copying, without a pass"),
        (False, 0, False, ""),
    ],
)
def test_a_round_names_how_it_drafted(block, count, copied, how):
    trace = ran(max_new_tokens=5)
    if block:
        trace = replace(
            trace,
            pair=trace.pair | {"block": {"id": "block"}},
            request=trace.request | {"at_once": True},
        )
    assert drafting(trace, count, copied) == how


def test_a_round_names_its_times_and_what_was_accepted():
    one = explained()
    assert one.drafting == "4 tokens were drafted in 2.0 ms, each in a pass of its own"
    assert one.verification == (
        "One forward pass of the target took 10.0 ms and accepted 2 of 4; the step ended 100.0 ms "
        "after the start"
    )


@pytest.mark.parametrize("verification", ["token", "block", "typical"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_token_of_a_run_is_explained_as_plain_data(temperature, verification):
    trace = ran(STRANGE, temperature=temperature, verification=verification, max_new_tokens=60)
    told = json.loads(json.dumps(explanations(trace)))
    for name, lane in trace.lanes.items():
        tokens = [token for step in told[name] for token in step["tokens"]]
        refused = [token for token in tokens if token["state"] in ("rejected", "untested")]
        assert len(tokens) - len(refused) == len(lane.tokens)
        assert len(refused) == sum(len(step.drafted) for step in lane.steps) - sum(
            token.origin in ("accepted", "remembered") for token in lane.tokens
        )
        assert all(token["reason"] and token["name"].isprintable() for token in tokens)
