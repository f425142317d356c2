"""How small a draft: imposed acceptance, drafts of a size, and the speedup by ratio."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.imposed import Imposed, accepted_counts
from lab.shapes import SHAPES, draft_of
from lab.studies.ratio import ACCEPTANCES, LENGTHS, RATIOS, STUDY, TARGETS, Run, measured, rows_of
from pipeline.decoding.drafters.model import MODEL
from pipeline.decoding.economics import expected_tokens
from pipeline.decoding.events import Step
from pipeline.decoding.lanes import Lanes
from pipeline.decoding.sampling import SamplingParams
from tests.fakes import FakeLM
from tests.tiny import tiny_folder


@given(st.floats(0, 1), st.integers(1, 8), st.integers(4, 40), st.integers(0, 99))
def test_the_accepted_counts_have_the_expected_mean_even_for_a_few_rounds(a, k, rounds, seed):
    counts = accepted_counts(a, k, rounds, np.random.default_rng(seed))
    assert len(counts) == rounds
    expected = expected_tokens([a] * k)[-1] - 1
    assert abs(np.mean(counts) - expected) <= k / 2 / rounds + 1e-6


@pytest.mark.parametrize("likeness", [0, 1])  # a draft that is never right, and one always right
def test_as_many_drafted_tokens_are_accepted_as_planned_and_no_others(likeness):
    target, planned = FakeLM(9, 0), [0, 4, 2, 3, 1, 4, 0]
    draft = FakeLM(9, 1, like=target, likeness=likeness)
    lanes = Lanes(target=lambda prompt: target, draft=lambda prompt: draft, verify=Imposed(planned))
    budget = sum(planned) + len(planned) + 4 - planned[-1]  # which no draft reaches
    lane = lanes.speculative([1, 2], SamplingParams(), budget, MODEL.name, 4)
    steps = [next(e for e in lane if isinstance(e, Step)) for _ in planned]
    assert [step.accepted for step in steps] == planned
    for step, count in zip(steps, planned, strict=True):
        assert step.tokens[:count] == step.drafted[:count]
        assert step.tokens[count : count + 1] != step.drafted[count : count + 1]
        assert len(step.tokens) == count + 1


def test_a_draft_has_about_the_wanted_size_whole_heads_and_is_shallower_than_its_target():
    for name in TARGETS:
        target = SHAPES[name]
        assert target.parameters == pytest.approx(1e6 * int(name.rstrip("M")), rel=0.02)
        for ratio in RATIOS:
            draft = draft_of(target.parameters / ratio)
            assert draft.parameters == pytest.approx(target.parameters / ratio, rel=0.1)
            assert draft.hidden % 64 == 0
            assert draft.layers < target.layers
            assert draft.trimmed
            assert draft.vocabulary < target.vocabulary


def runs(speed, targets=TARGETS, error=0.0):
    """Of every combination, with the speedup that `speed` gives a ratio at an acceptance; the
    fastest K is 3.
    """
    return [
        Run(target, ratio, a, k, s, s * (1 + error))
        for target in targets
        for ratio in RATIOS
        for a in ACCEPTANCES
        for k in LENGTHS
        for s in [speed(ratio, a) * (1 if k == 3 else 0.9) * (1 + 0.1 * targets.index(target))]
    ]


def linear(ratio, a):
    """Slower than autoregression up to an acceptance of 50 % for 2×, and of less for others."""
    return 0.5 + a * (1 + 0.25 * RATIOS.index(ratio))


def test_a_row_has_the_median_of_the_targets_their_range_and_the_fastest_length():
    rows = [*rows_of(runs(linear, error=-0.04))]
    assert [(row["ratio"], row["acceptance"]) for row in rows] == [
        (f"{ratio}×", a) for ratio in RATIOS for a in ACCEPTANCES
    ]
    row = rows[8]  # 2×, 80 %
    assert row["60M"] == row["lowest"] == pytest.approx(1.3)
    assert row["410M"] == row["highest"] == pytest.approx(1.3 * 1.3)
    assert row["speedup"] == row["k3"] == pytest.approx(1.3 * 1.15)
    assert row["k4"] == pytest.approx(0.9 * 1.3 * 1.15)
    assert row["length"] == 3
    assert row["predicted"] == pytest.approx(0.96 * 1.3 * 1.15)
    assert row["error"] == pytest.approx(0.04)


def test_the_papers_speedups_are_marked_where_its_ratio_reaches_them():
    marks = STUDY.chart.marks([*rows_of(runs(linear, ("60M",)))])
    share = np.log(4.3 / 4) / np.log(10 / 4)
    slope = 1.25 + 0.25 * share
    assert [mark.y for mark in marks] == [1.46, 1.64]
    # Interpolated on lines between tenths.
    assert [mark.x for mark in marks] == pytest.approx(
        [(1.46 - 0.5) / slope, (1.64 - 0.5) / slope], abs=1e-3
    )
    assert marks[0].name == "the paper, 4.3×, 40 tokens: 1.46×"
    slow = [*rows_of(runs(lambda ratio, a: 0.5 + a / 2, ("60M",)))]
    assert STUDY.chart.marks(slow) == []


def test_every_combination_is_measured_with_real_models():
    folder = tiny_folder()
    drafts = dict.fromkeys((2, 4), folder / "draft")
    results = [*measured({"60M": (folder / "target", drafts)}, (0.0, 1.0), (1, 3), rounds=4)]
    last = results[-1]
    assert last.complete
    assert last.planned == 8
    cells = [(row["ratio"], row["acceptance"]) for row in last.rows]
    assert cells == [("2×", 0), ("2×", 1), ("4×", 0), ("4×", 1)]
    for row in last.rows:  # whose times, of models so small, are this machine's noise
        assert min(row[name] for name in ("60M", "k1", "k3", "predicted")) > 0
        assert row["error"] >= 0
    assert "random weights" in last.pair["name"]
