"""How near distributions are to a reference's, and the study of the precision of weights."""

from copy import copy

import numpy as np
import pytest

from lab.answers import answered
from lab.quality import Quality, compared, distributions, written
from lab.studies import precision
from lab.studies.precision import STUDY
from pipeline.decoding.sampling import SamplingParams
from pipeline.request import Request
from tests.fake_dolly import FakeDolly
from tests.served import PLAIN
from tests.tiny import tiny

PROMPT = [5, 9, 300, 12, 40, 41]


def test_quality_is_of_all_positions_of_all_texts():
    reference = [np.array([[0.5, 0.5, 0.0]]), np.array([[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]])]
    got = [np.array([[0.6, 0.4, 0.0]]), np.array([[0.9, 0.1, 0.0], [0.5, 0.3, 0.2]])]
    quality = compared(got, reference)
    assert [quality.positions, quality.top1] == [3, pytest.approx(2 / 3)]
    one = 0.5 * np.log(0.5 / 0.6) + 0.5 * np.log(0.5 / 0.4)
    other = 0.2 * np.log(0.2 / 0.5) + 0.5 * np.log(0.5 / 0.2)
    assert quality.kl == pytest.approx((one + other) / 3)
    assert compared(reference, reference) == Quality(1, 0, 3)
    rounded = [one * 1.000001 for one in reference]  # to a sum above 1
    assert compared(rounded, reference).kl == 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_is_as_good_as_itself_on_its_own_text(temperature):
    model, params = tiny().models().target, SamplingParams(temperature, seed=1)
    tokenizer = copy(tiny().tokenizer)
    tokenizer.end_ids = frozenset()
    text = written(model, PROMPT, params, 12, tokenizer)
    assert [len(text.answer), [*text.prompt]] == [12, PROMPT]
    found = [distributions(model, text, model.vocab_size)]
    assert found[0].shape == (12, model.vocab_size)
    assert compared(found, found).top1 == 1
    if not temperature:
        assert found[0].argmax(axis=1).tolist() == [*text.answer]
    tokenizer.end_ids = frozenset(text.answer[3:4])
    cut = written(model, PROMPT, params, 12, tokenizer)
    assert [*cut.answer] == [*text.answer[: text.answer.index(text.answer[3]) + 1]]


def test_every_pair_of_precisions_has_a_row_for_each_kind_of_text():
    dollies = {pair: FakeDolly(PLAIN) for pair in precision._PAIRS}
    requests = [Request("Say it", max_new_tokens=12)]
    *_, answers = answered(precision.conditions(dollies), requests, 1)
    of_text = dict.fromkeys(precision._EVERY, Quality(0.9, 0.01, 10))
    peaks = dict.fromkeys(precision._PAIRS)  # None: not measurable on every system
    rows = [*precision.rows_of(dict.fromkeys(precision._TEXTS, of_text), peaks, answers)]
    assert len(rows) == 2 * len(precision._PAIRS)
    assert {key for row in rows for key in row} == {c.name for c in STUDY.columns}
    assert {row["identical"] for row in rows if row["text"] == "greedy"} == {1}
    assert {row["identical"] for row in rows if row["text"] == "sampled"} == {None}
