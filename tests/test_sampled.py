"""The sampled certificate: what it computes, that it passes, and that it can fail."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab.goodness import BINS, histogram, p_value, uniformity
from scipy.stats import kstest

from lab.studies.recalled import MISSING, SIZE, Numbers, Rows, recalled
from lab.studies.sampled import CONTROL, LENGTHS, VARIANTS, certify, find_contexts, joint
from lab.training.corpus import Record
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
from ui.plots.certificate import CERTIFICATE, certificate

PARAMS = SamplingParams(1.0, top_k=3)
CONTEXT = [0, 1, 2, 3, 4, 5, 1, 2]  # every token, in the order in which they are numbered

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


@settings(max_examples=50, derandomize=True)
@given(values=st.lists(st.floats(0, 1), min_size=30, max_size=300), shape=st.floats(0.3, 3))
def test_the_test_of_uniformity_is_that_of_kolmogorov_and_smirnov(values, shape):
    bent = [value**shape for value in values]
    distance, p = uniformity(bent)
    known = kstest(bent, "uniform", method="exact")
    assert distance == pytest.approx(known.statistic)
    assert p == pytest.approx(known.pvalue, abs=0.02)


@given(values=st.lists(st.floats(0, 1)))
def test_the_histogram_counts_every_p_value_once(values):
    bins = histogram(values)
    assert len(bins) == BINS
    assert sum(bins) == len(values)


# --- models that recall --------------------------------------------------------------------------


def fake_lanes(proposed=None, **changes):
    """Lanes of six tokens, of which the draft can propose only some."""

    def target(prompt=()):
        model = FakeLM(6, 5, sharpness=1.0)
        model.hidden = lambda token: [float(token), 1.0]
        return model

    def draft(prompt=()):
        return FakeLM(6, 9, like=target(), likeness=0.4, sharpness=1.0, token_ids=proposed)

    costs = Costs(0.1, (1.0,) * 9, block=0.1)
    return Lanes(
        target=target, draft=draft, block=lambda: FakeBlock(draft()), costs=lambda: costs, **changes
    )


def tokens_of(lane):
    return [(event.tokens, event.origins) for event in lane if isinstance(event, Step)]


@pytest.mark.parametrize("proposed", [None, [2, 3, 4, 5]])
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("k", [1, 4])
def test_texts_of_recalled_models_are_those_of_the_models(drafter, k, proposed):
    lanes = fake_lanes(proposed, end_ids=frozenset({4}))
    recalling = recalled(lanes, CONTEXT, PARAMS.top_k)
    numbers = recalling.numbers
    texts = set()
    for seed in range(30):
        params = replace(PARAMS, seed=seed)
        one = tokens_of(lanes.speculative(CONTEXT, params, 9, drafter, k))
        other = tokens_of(recalling.lanes.speculative(recalling.prompt, params, 9, drafter, k))
        assert one == [(tuple(numbers.tokens(tokens)), origins) for tokens, origins in other]
        texts.add(str(one))
    assert len(texts) > 3


def test_what_is_known_is_not_computed_again():
    runs = []

    def counted(prompt):
        model = FakeLM(6, 5)
        runs.append(model.widths)
        return model

    recalling = recalled(replace(fake_lanes(), target=counted, block=None), CONTEXT, PARAMS.top_k)
    first, again = (recalling.lanes.autoregressive(recalling.prompt, PARAMS, 5) for _ in range(2))
    texts = [tokens_of(first)]
    passes = sum(map(len, runs))
    texts.append(tokens_of(again))
    assert sum(map(len, runs)) == passes > 5
    assert texts[0] == texts[1]


def test_a_recalled_model_is_never_fed_a_long_pass_after_the_context():
    """Passes of more than nine tokens take other kernels, whose logits are not bit-identical."""
    model = FakeLM(6, 5)
    lanes = replace(fake_lanes(), target=lambda prompt: model, block=None)
    recalling = recalled(lanes, CONTEXT, PARAMS.top_k)
    for seed in range(20):
        params = replace(PARAMS, seed=seed)
        tokens_of(recalling.lanes.speculative(recalling.prompt, params, 30, "model", 8))
    assert max(model.widths[1:]) <= 9


@settings(max_examples=60, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), sharpness=st.floats(0.1, 8), top_p=st.floats(0.3, 1))
def test_small_rows_have_the_distribution_and_the_confidence_of_the_whole_ones(
    seed, sharpness, top_p
):
    rng = np.random.default_rng(seed)
    row = (rng.normal(size=4000) * sharpness).astype(np.float32)
    ids = np.sort(rng.permutation(9000)[:4000])
    numbers = Numbers([ids])
    rows, params = Rows(numbers, ids, 9000, 3), SamplingParams(1.0, top_k=3, top_p=top_p)
    small = rows.small(row)
    assert small.shape == (rows.vocab_size,) == rows.token_ids.shape
    (whole,), (few,) = (probabilities(each[None], params) for each in (row, small))
    kept = np.flatnonzero(few)
    expected = {int(ids[at]): float(whole[at]) for at in np.flatnonzero(whole)}
    found = zip(numbers.tokens(rows.token_ids[kept]), few[kept].tolist(), strict=True)
    assert dict(found) == pytest.approx(expected, rel=1e-5)

    def confidence(logits):
        return 1 / np.exp(logits - logits.max(), dtype=np.float64).sum()

    if sharpness > 1:  # elsewhere the others would be likelier than those that are kept
        assert confidence(small) == pytest.approx(confidence(row), rel=1e-3)


def test_tokens_are_numbered_apart_if_no_draft_has_them():
    numbers = Numbers([np.array([3, 5]), np.array([5, 8])])
    assert numbers.of([8, 4, 3, 4]) == [MISSING, 0, MISSING + 1, 0]
    assert numbers.tokens([MISSING + 1, 0]) == [3, 4]
    assert Numbers([np.array([3]), None]).of([4]) == [MISSING]
    with pytest.raises(ValueError, match="more tokens occur"):
        numbers.of(range(100, 100 + SIZE))


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


def test_every_drafter_is_certified_at_fixed_and_auto_lengths_and_by_each_verifier():
    assert {variant.drafter for variant in VARIANTS} == {"", *DRAFTERS}
    kinds = {(v.drafter, v.draft_length, v.verification) for v in VARIANTS if v.drafter}
    assert len(kinds) == len(VARIANTS) - 1
    for name in set(DRAFTERS) - {"lookup"}:  # a copy is verified token by token
        for verification in (each for each in VERIFIERS if VERIFIERS[each].exact):
            assert {(name, "fixed", verification), (name, "auto", verification)} <= kinds
    assert {("lookup", "fixed", "token"), ("lookup", "auto", "token")} <= kinds


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
    *_, result = certify(tiny(), RECORDS, request, contexts=8, draws=100)
    assert result.contexts == 8
    assert result.lossless
    assert result.caught
    for fit in result.fits:
        assert len(fit.p_values) == 8
        told = json.loads(json.dumps(fit.describe()))
        assert sum(told["histogram"]) == 8
        if fit.variant.drafter:
            assert 0 < fit.drafted <= max(LENGTHS) * fit.rounds
        if fit.variant.drafter not in ("", "lookup"):  # this pair rarely repeats a text's pairs
            assert 0 < fit.accepted < fit.tested
    assert "8 contexts" in str(result)


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


def test_without_a_context_there_is_one_line_that_says_so():
    with pytest.raises(UserError, match="contexts: 3 — none was found"):
        [*certify(tiny(), [], Request("any", temperature=1.0, top_k=4), contexts=3, draws=5)]


def test_without_top_k_there_is_one_line_that_says_so():
    with pytest.raises(UserError, match="top_k: 0 — choose at least 1"):
        next(certify(tiny(), RECORDS, Request("any", temperature=1.0), contexts=3, draws=5))


def test_the_control_is_wrong_where_a_draft_is_rejected():
    """Its tokens do not follow the target where those of the right verifier do."""
    lanes = fake_lanes()
    expected = joint(lanes.target(()), CONTEXT, PARAMS, frozenset())

    def counts(verify):
        texts = Counter()
        recalling = recalled(replace(lanes, verify=verify), CONTEXT, PARAMS.top_k)
        for seed in range(3000):
            params = replace(PARAMS, seed=seed)
            lane = recalling.lanes.speculative(recalling.prompt, params, 3, "model", 2)
            made = [token for tokens, _ in tokens_of(lane) for token in tokens]
            texts[tuple(recalling.numbers.tokens(made[:2]))] += 1
        return texts

    assert_follows(counts(VERIFIERS["token"].verify), expected)
    with pytest.raises(AssertionError):
        assert_follows(counts(CONTROL.verify), expected)


# --- on the page ---------------------------------------------------------------------------------


def test_the_committed_certificate_is_whole_passes_and_caught_the_wrong_verifier():
    found = certificate()
    assert found["contexts"] >= 200
    kinds = {
        (fit["drafter"], fit["draft_length"], fit["verification"]) for fit in found["variants"]
    }
    assert kinds == {(v.drafter, v.draft_length, v.verification) for v in VARIANTS}
    assert all(fit["p"] >= found["limit"] for fit in found["variants"])
    assert found["control"]["p"] < found["limit"]
    for fit in (*found["variants"], found["control"]):
        assert sum(fit["histogram"]) == found["contexts"]


def test_the_plot_shows_all_p_values_and_those_of_the_wrong_verifier():
    figure, found = CERTIFICATE.draw(ran()), certificate()
    assert figure.checked
    for bars in figure.data:
        assert len(bars["y"]) == BINS
        assert sum(bars["y"]) == pytest.approx(1, abs=1e-3)
    every, wrong = figure.data
    assert max(every["y"]) < 1.5 / BINS  # nearly even
    assert max(wrong["y"]) == wrong["y"][0] > 2 / BINS
    assert len(figure.table().rows) == len(VARIANTS) + 1
    assert f"{found['contexts']} contexts" in figure.note
