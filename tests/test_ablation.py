"""The ablation: what is computed of its answers."""

import math
from dataclasses import replace

import numpy as np
import pytest

from lab.answers import Answer, Answers, answered, seconds_of
from lab.quality import Quality
from lab.studies import ablation
from lab.studies.ablation import STUDY, Combination, geometric_mean, interaction
from pipeline.request import Request
from pipeline.trace.cost import Cost
from tests.fake_dolly import FakeDolly
from tests.served import PLAIN
from tests.traces import ran

NO_COST = Cost(None, None, None, None)
TIMES = {  # milliseconds of a token
    ("no cache", "autoregressive"): 80,
    ("no cache", "speculative"): 40,
    ("cache", "autoregressive"): 10,
    ("cache", "speculative"): 8,
}


def lane(milliseconds, tokens=100):
    """An autoregressive lane whose every step takes that long."""
    made = FakeDolly(PLAIN).start(Request("any", max_new_tokens=tokens), "autoregressive").finish()
    (lane,) = made.lanes.values()
    steps = [replace(s, draft_s=0.0, verify_s=milliseconds / 1e3, other_s=0.0) for s in lane.steps]
    return replace(lane, steps=tuple(steps))


def answers_with(times, repeats):
    made = [
        Answer(Combination("f32", *cell).name, 0, lane(times[cell] * factor), NO_COST)
        for factor in repeats
        for cell in times
    ]
    return Answers((), len(made), tuple(made))


def test_the_first_tokens_take_their_share_of_the_round_that_emits_the_last_of_them():
    fast = ran().speculative
    steps = [replace(s, draft_s=0.0, verify_s=0.010, other_s=0.0) for s in fast.steps]
    fast = replace(fast, steps=tuple(steps))
    made = [len(tokens) for tokens in fast.emitted]
    at = next(place for place, count in enumerate(made) if place and count > 1)
    before = sum(made[:at])
    assert seconds_of(fast, before) == pytest.approx(0.010 * at)
    assert seconds_of(fast, before + 1) == pytest.approx(0.010 * (at + 1 / made[at]))
    assert seconds_of(fast, 10_000) == pytest.approx(0.010 * len(steps))


@pytest.mark.filterwarnings("ignore:Precision loss")  # of repeats that are all the same
def test_gains_that_multiply_have_an_interaction_of_one_and_others_do_not():
    multiply = TIMES | {("cache", "speculative"): 5}  # 8 × 2 = 16 = 80 / 5
    mean, low, high = interaction(answers_with(multiply, (1.0, 1.0, 1.0)), "f32")
    assert mean == pytest.approx(low) == pytest.approx(high) == pytest.approx(1)
    mean, _, _ = interaction(answers_with(TIMES, (1.0, 1.1)), "f32")
    assert mean == pytest.approx((80 / 8) / ((80 / 10) * (80 / 40)))
    assert interaction(answers_with(TIMES, (1.0,)), "f32") is None


def test_an_interval_is_that_of_students_t():
    mean, low, high = geometric_mean(np.exp([1.0, 2.0, 3.0]))
    assert math.log(mean) == pytest.approx(2)
    half = 4.3027 * 1 / math.sqrt(3)
    assert [math.log(low), math.log(high)] == pytest.approx([2 - half, 2 + half], rel=1e-4)


def test_every_cell_is_measured_with_the_same_settings_and_shown():
    dollies = {weights: FakeDolly(PLAIN) for weights in ("f32", "int8", "shipped")}
    conditions = [ablation._condition(each, dollies) for each in ablation._EVERY]
    crossed = [dict(each.changes) for each in conditions[:8]]
    assert {each.pop("kv_cache") for each in crossed} == {"uncached", "paged"}
    assert crossed.count(crossed[0]) == 8
    requests = [Request("Say it", max_new_tokens=100)] * 2
    *_, answers = answered(conditions, requests, 2)
    peaks = dict.fromkeys(ablation._EVERY, 3_000_000)
    qualities = dict.fromkeys(dollies, Quality(0.9, 0.01, 10))
    rows = [*ablation._rows("fake", peaks, qualities, answers)]
    assert len(rows) == 2 * 10
    names = {column.name for column in STUDY.columns}
    assert {key for row in rows for key in row} == names
    joint = [row for row in rows if row["interaction"] is not None]
    assert [row["cell"] for row in joint] == [
        "f32, cache, speculative",
        "int8, cache, speculative",
    ] * 2
    assert all(row["low"] <= row["interaction"] <= row["high"] for row in joint)
    assert {row["gain"] for row in rows if row["cell"] == rows[0]["cell"]} == {1}
    assert {row["same"] for row in rows} == {1}
