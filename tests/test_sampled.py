"""The sampled certificate: what it computes, that it passes, and that it can fail."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.corpus import Record
from lab.studies.recalled import recalled
from lab.studies.sampled import (
    BINS,
    LENGTHS,
    STUDY,
    certify,
    find_contexts,
    joint,
    limit,
    p_value,
    uniformity,
    variants,
    without_residual,
)
from pipeline.decoding.drafters import DRAFTERS
from pipeline.decoding.economics import Costs
from pipeline.decoding.events import Step
from pipeline.decoding.lanes import Lanes
from pipeline.decoding.sampling import SamplingParams, probabilities
from pipeline.decoding.verification import VERIFIERS
from pipeline.errors import UserError
from pipeline.request import Request
from tests.chi_square import SIGNIFICANCE, assert_follows
from tests.fakes import FakeBlock, FakeLM
from tests.tiny import tiny
from tests.traces import ran
from ui.laboratory import last_result
from ui.plots.certificate import CERTIFICATE

PARAMS = SamplingParams(1.0, top_k=3)
CONTEXT = [0, 1, 2, 3, 4, 5, 1, 2]

distributions = st.lists(st.floats(0.01, 1.0), min_size=2, max_size=12)


def outcomes(weights):
    return {(i,): weight / sum(weights) for i, weight in enumerate(weights)}


def drawn(probs, count, rng):
    keys = [*probs]
    counts = rng.multinomial(count, [probs[key] for key in keys])
    return {key: int(n) for key, n in zip(keys, counts, strict=True) if n}


# --- goodness of fit -----------------------------------------------------------------------------


@settings(max_examples=8, derandomize=True)
@given(weights=distributions, seed=st.integers(0, 2**32 - 1))
def test_p_values_of_true_draws_are_uniform_however_few_the_draws(weights, seed):
    rng, probs = np.random.default_rng(seed), outcomes(weights)
    values = [p_value(drawn(probs, 12, rng), probs, rng) for _ in range(300)]
    assert all(0 <= value <= 1 for value in values)
    assert uniformity(values)[1] > SIGNIFICANCE


@settings(max_examples=20, derandomize=True)
@given(weights=distributions, seed=st.integers(0, 2**32 - 1))
def test_draws_of_another_distribution_have_small_p_values(weights, seed):
    rng, probs = np.random.default_rng(seed), outcomes(weights)
    flipped = dict(zip(probs, [*probs.values()][::-1], strict=True))
    mixed = {key: (probs[key] + flipped[key]) / 2 for key in probs}
    distance = sum(abs(mixed[key] - probs[key]) for key in probs) / 2
    if distance > 0.1:
        assert p_value(drawn(mixed, 4000, rng), probs, rng) < 0.01


def test_an_outcome_without_probability_has_the_p_value_zero():
    rng, probs = np.random.default_rng(0), {(0,): 1.0, (1,): 0.0}
    assert p_value({(0,): 50}, probs, rng) > 0
    assert p_value({(0,): 49, (1,): 1}, probs, rng) == 0
    assert p_value({(0,): 49, (2,): 1}, probs, rng) == 0


# --- models that recall --------------------------------------------------------------------------


def fake_lanes(proposed=None, **changes):
    """Lanes of six tokens, of which the draft can propose only some."""

    def target(prompt=()):
        model = FakeLM(6, 5, sharpness=1.0)
        model.hidden = lambda token: [float(token), 1.0]
        return model

    def draft(prompt=()):
        return FakeLM(6, 9, like=target(), likeness=0.4, sharpness=1.0, token_ids=proposed)

    costs = Costs(0.1, (1.0,) * 9, block_draft=0.1)
    return Lanes(
        target=target,
        draft=draft,
        block_draft=lambda: FakeBlock(draft()),
        costs=lambda: costs,
        **changes,
    )


def tokens_of(lane):
    return [(event.tokens, event.origins) for event in lane if isinstance(event, Step)]


@pytest.mark.parametrize("proposed", [None, [2, 3, 4, 5]])
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("k", [1, 4])
def test_texts_of_recalled_models_are_those_of_the_models(drafter, k, proposed):
    lanes = fake_lanes(proposed, end_ids=frozenset({4}))
    recalling = recalled(lanes, CONTEXT)
    texts = set()
    for seed in range(30):
        params = replace(PARAMS, seed=seed)
        one = tokens_of(lanes.speculative(CONTEXT, params, 9, drafter, k))
        assert one == tokens_of(recalling.speculative(CONTEXT, params, 9, drafter, k))
        texts.add(str(one))
    assert len(texts) > 3


def test_what_is_known_is_not_computed_again():
    runs = []

    def counted(prompt):
        model = FakeLM(6, 5)
        runs.append(model.widths)
        return model

    recalling = recalled(replace(fake_lanes(), target=counted, block_draft=None), CONTEXT)
    first, again = (recalling.autoregressive(CONTEXT, PARAMS, 5) for _ in range(2))
    texts = [tokens_of(first)]
    passes = sum(map(len, runs))
    texts.append(tokens_of(again))
    assert sum(map(len, runs)) == passes > 5
    assert texts[0] == texts[1]


def test_a_recalled_model_is_never_fed_a_long_pass_after_the_context():
    """Passes of more than nine tokens take other kernels, whose logits are not bit-identical."""
    model = FakeLM(6, 5)
    lanes = replace(fake_lanes(), target=lambda prompt: model, block_draft=None)
    recalling = recalled(lanes, CONTEXT)
    for seed in range(20):
        params = replace(PARAMS, seed=seed)
        tokens_of(recalling.speculative(CONTEXT, params, 30, "model", 8))
    assert max(model.widths[1:]) <= 9


# --- the certificate -----------------------------------------------------------------------------


def test_the_joint_distribution_is_that_of_the_targets_logits():
    target = FakeLM(6, 5, sharpness=1.0)
    end = int(np.argsort(target.next_logits(CONTEXT))[-2])  # not the likeliest

    def after(*tokens):
        row = np.array([target.next_logits([*CONTEXT, *tokens])], np.float32)
        probs = probabilities(row, PARAMS)[0]
        return {int(token): float(probs[token]) for token in np.flatnonzero(probs)}

    expected = {(end,): after()[end]} | {
        (a, b): p * q for a, p in after().items() if a != end for b, q in after(a).items()
    }
    assert joint(FakeLM(6, 5, sharpness=1.0), CONTEXT, PARAMS, frozenset({end})) == expected
    assert sum(expected.values()) == pytest.approx(1)


RECORDS = [
    Record(
        f"Say {number} things about licences",
        "",
        "The work is the work of the work, and the licence is a licence of the work. " * 2,
    )
    for number in range(12)
]


def test_a_small_certificate_of_a_real_pair_passes_and_catches_the_wrong_verifier():
    request = Request("any", temperature=1.5, top_k=4)
    *_, found = certify(tiny(), RECORDS, request, contexts=8, draws=100)
    rows = [each.row for each in found]
    assert STUDY.holds(rows)
    assert not STUDY.holds([*rows[1:], rows[0]])  # nothing wrong is caught
    for each in found:
        assert len(each.p_values) == sum(each.histogram) == 8
        if each.drafter:
            assert 0 < each.drafted <= max(LENGTHS) * each.rounds
        if each.drafter not in ("", "lookup"):  # this pair rarely repeats a text's pairs
            assert 0 < each.accepted < each.tested


def test_contexts_end_in_what_occurred_before_and_leave_a_choice():
    dolly, rng = tiny(), np.random.default_rng(0)
    request = Request("any", temperature=1.5, top_k=4)
    lanes = dolly.lanes(request)
    found = [*find_contexts(dolly, RECORDS, lanes, request.sampling, rng)]
    assert len(found) > 5
    for context in found:
        pairs = [*zip(context.tokens, context.tokens[1:], strict=False)]
        assert pairs[-1] in pairs[:-1]
        assert max(context.probs.values()) < 0.9
        assert sum(context.probs.values()) == pytest.approx(1)
        assert context.earlier[: len(context.tokens)] == context.tokens


@pytest.mark.parametrize(
    ("records", "top_k", "line"),
    [([], 4, "contexts: 3 — none was found"), (RECORDS, 0, "top_k: 0 — choose at least 1")],
)
def test_what_cannot_be_certified_is_one_line(records, top_k, line):
    request = Request("any", temperature=1.0, top_k=top_k)
    with pytest.raises(UserError, match=line):
        [*certify(tiny(), records, request, contexts=3, draws=5)]


def test_the_control_is_wrong_where_a_draft_is_rejected():
    """Its tokens do not follow the target where those of the right verifier do."""
    lanes = fake_lanes()
    expected = joint(lanes.target(()), CONTEXT, PARAMS, frozenset())

    def counts(verify):
        texts = Counter()
        recalling = recalled(replace(lanes, verify=verify), CONTEXT)
        for seed in range(3000):
            params = replace(PARAMS, seed=seed)
            lane = recalling.speculative(CONTEXT, params, 3, "model", 2)
            made = [token for tokens, _ in tokens_of(lane) for token in tokens]
            texts[tuple(made[:2])] += 1
        return texts

    assert_follows(counts(VERIFIERS["token"].verify), expected)
    with pytest.raises(AssertionError):
        assert_follows(counts(without_residual), expected)


# --- on the page ---------------------------------------------------------------------------------


def test_the_committed_certificate_is_of_every_variant_and_on_the_page():
    """Each drafter at fixed and at auto lengths, and by each verifier that it has."""
    found, figure = last_result("sampled"), CERTIFICATE.draw(ran())
    names = ("drafter", "draft_length", "verification")
    kinds = [tuple(row[name] for name in names) for row in found.rows]
    assert kinds == [(v.drafter, v.draft_length, v.verification) for v in variants()]
    exact = {name for name, verifier in VERIFIERS.items() if verifier.exact}
    wanted = {
        (drafter, length, rule)
        for drafter in DRAFTERS
        for length in ("fixed", "auto")
        for rule in ({"token"} if drafter == "lookup" else exact)  # a copy is verified by tokens
    }
    assert {*kinds[1:-1]} == wanted
    assert STUDY.holds(found.rows)
    assert limit(found.rows) == pytest.approx(0.01 / (len(kinds) - 1))
    contexts = found.figures["contexts"]
    assert contexts >= 200
    assert {sum(bins) for bins in found.figures["histograms"]} == {contexts}
    assert figure.checked
    every, wrong = figure.data
    assert len(every["y"]) == len(wrong["y"]) == BINS
    assert sum(every["y"]) == pytest.approx(1, abs=1e-3)
    assert max(every["y"]) < 1.5 / BINS  # nearly even
    assert max(wrong["y"]) == wrong["y"][0] > 2 / BINS
    assert len(figure.table().rows) == len(kinds)
    assert f"{contexts} contexts" in figure.note
