"""Typical acceptance: what it accepts, what it costs, and that nothing calls its text the same."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.studies.typical import emitted_exactly, emitted_typically
from pipeline.decoding.events import Origin
from pipeline.decoding.sampling import sample
from pipeline.decoding.verification import VERIFIERS
from pipeline.decoding.verification.tokens import verify
from pipeline.decoding.verification.typical import DELTA, EPSILON, threshold, verify_typical
from pipeline.request import Request
from pipeline.trace.reader import parse_trace
from tests.chi_square import assert_follows
from tests.traces import ran
from ui.tabs.how import how
from ui.tour import stops
from ui.verdict import summary, verdict

VOCAB = 12
LOSSY = {"verification": "typical"}
CLAIMS = ("identical", "same distribution")


def distribution(seed, concentration=0.3):
    weights = np.random.default_rng(seed).dirichlet([concentration] * VOCAB) + 1e-12
    return weights.astype(np.float32)


def test_the_threshold_is_medusas():
    """min(epsilon, delta * exp(-H)): for n equally likely tokens exp(-H) is 1 / n."""
    for count in (1, 2, 3, 4, 10, 12):
        row = np.zeros(VOCAB, np.float32)
        row[:count] = 1 / count
        assert threshold(row) == pytest.approx(min(EPSILON, DELTA / count), rel=1e-5)


def test_a_token_is_accepted_by_the_targets_probability_alone():
    row = np.array([0.5, 0.3, 0.15, 0.05], np.float32)  # min(0.09, 0.3 * exp(-1.14)) = 0.09
    rng = np.random.default_rng(0)
    for draft in (None, np.full((1, 4), 0.25, np.float32), np.eye(4, dtype=np.float32)[[3]]):
        accepted = [verify_typical(np.stack([row] * 2), draft, [t], rng).accepted for t in range(4)]
        assert accepted == [1, 1, 1, 0]


def test_the_first_token_that_is_not_typical_ends_the_round_and_is_replaced():
    row = np.array([0.5, 0.3, 0.15, 0.05], np.float32)
    rng = np.random.default_rng(0)
    verdicts = [verify_typical(np.stack([row] * 4), None, [0, 3, 1], rng) for _ in range(3000)]
    assert {v.accepted for v in verdicts} == {1}
    assert {v.origin for v in verdicts} == {Origin.RESAMPLED}
    assert {v.accept_prob for v in verdicts} == {(1.0, 0.0)}
    assert {v.uniform for v in verdicts} == {(None, None, None)}
    replaced = np.array([0.5, 0.3, 0.15, 0.0]) / 0.95
    assert_follows(Counter(v.token for v in verdicts), dict(enumerate(replaced)))


def test_a_round_in_which_all_pass_or_nothing_is_drafted_ends_with_the_targets_own():
    row = distribution(3)
    rng = np.random.default_rng(0)
    likely = int(row.argmax())
    for tokens, origin in (([likely] * 2, Origin.BONUS), ([], Origin.TARGET)):
        rows = np.stack([row] * (len(tokens) + 1))
        verdicts = [verify_typical(rows, None, tokens, rng) for _ in range(3000)]
        assert {(v.accepted, v.origin) for v in verdicts} == {(len(tokens), origin)}
        assert_follows(Counter(v.token for v in verdicts), dict(enumerate(row)))


# --- what it costs --------------------------------------------------------------------------------


@settings(max_examples=25, derandomize=True)
@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_the_computed_distribution_is_what_is_emitted(seed, sampled, typical):
    target, rng = distribution(seed), np.random.default_rng(seed)
    draft = distribution(seed + 1) if sampled else None
    token = int(rng.integers(VOCAB))
    rule, emitted = (verify_typical, emitted_typically) if typical else (verify, emitted_exactly)
    counts = Counter()
    for _ in range(4000):
        drafted = token if draft is None else sample(draft, rng)
        probs = None if draft is None else draft[None]
        verdict = rule(np.stack([target] * 2), probs, [drafted], rng)
        counts[drafted if verdict.accepted else verdict.token] += 1
    row = emitted(target, draft, token)
    assert row.sum() == pytest.approx(1)
    assert_follows(counts, dict(enumerate(row)))


# --- what is claimed ------------------------------------------------------------------------------


def test_a_trace_is_lossy_by_the_rules_of_the_registry():
    for name, rule in VERIFIERS.items():
        trace = ran(verification=name, temperature=0.8)
        assert trace.lossy is parse_trace(trace.to_json()).lossy is not rule.exact
    assert Request("any").verification == "token"


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_no_verdict_calls_a_lossy_text_identical_or_alike(temperature):
    """Greedily both texts are the same token for token, and still nothing is claimed."""
    trace = ran(temperature=temperature, **LOSSY)
    found = verdict(trace)
    assert (found["mark"], found["same"]) == ("differs", "Lossy, by choice.")
    assert found["headline_label"].startswith("per decoded token, lossy")
    assert trace.identical is None
    assert summary(trace).endswith("· lossy")
    running = replace(
        trace, lanes={name: replace(lane, finish=None) for name, lane in trace.lanes.items()}
    )
    for said in (found, verdict(running), verdict(trace, "Loaded")):
        texts = " ".join(said.values()).lower()
        assert not [claim for claim in CLAIMS if claim in texts]
    if not temperature:
        assert verdict(ran())["same"] == "Identical text."
        assert trace.autoregressive.text == trace.speculative.text


def test_how_it_works_and_the_tour_do_not_say_that_the_text_stays_the_same():
    trace = ran(temperature=0.8, max_new_tokens=60, **LOSSY)
    said = " ".join(stop.title + stop.text for stop in stops(trace)) + how(trace)["what"]
    assert "typical acceptance is lossy" in said
    assert said.count("p is typical of the target = no") == 2
    assert "random number" not in said
    for claim in ("stays the same", "not changed", "has the target’s distribution"):
        assert claim not in said
    assert "stays the same" in " ".join(stop.title for stop in stops(ran(temperature=0.8)))
