"""The seconds of a race and the memory of a replica, from the committed measurements."""

import json
from statistics import fmean, quantiles

import pytest

from lab.load.service import record_lengths, services
from lab.saved import RESULTS
from pipeline.models.pairs import DEFAULT_PAIR, EMBEDDED, PAIRS

KNOWN = {(service.pair, service.cores): service for service in services()}
EVALUATION = json.loads((EMBEDDED / "evaluation.json").read_text())


def result(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


def test_the_lengths_are_like_those_of_all_held_out_answers():
    """Of 200 others, by their quartiles, and of 500, by their mean."""
    answers = [answer for _, answer in record_lengths()]
    assert len(answers) == len(EVALUATION["reading"]) == 60
    for ours, theirs in zip(quantiles(answers, n=4), EVALUATION["answers"]["tokens"], strict=True):
        assert ours == pytest.approx(theirs, rel=0.15)
    lossless = result("lossless")["rows"][0]  # all have the same texts
    assert fmean(answers) == pytest.approx(lossless["tokens"] / lossless["races"], rel=0.1)


def test_a_race_of_the_embedded_pair_takes_what_both_its_answers_took_and_on_one_core_twice_that():
    """The table of the paper has whole answers, whose lengths differ a little."""
    (whole,) = (
        row
        for row in result("paper")["rows"]
        if (row["new_tokens"], row["records"], row["ends"]) == (100, "held out", True)
    )
    both = whole["slow_s"] + whole["page_s"]
    one, two = (KNOWN[DEFAULT_PAIR, cores] for cores in (1, 2))
    assert two.mean == pytest.approx(both, rel=0.05)
    assert one.mean / two.mean == pytest.approx(2, rel=0.05)
    assert one.variation == pytest.approx(two.variation)
    assert (two.basis, one.basis) == ("derived", "predicted")
    assert two.memory_bytes > PAIRS[DEFAULT_PAIR].memory_bytes


def test_a_race_of_the_3b_takes_what_its_passes_took():
    """It has the autoregressive passes of its answer, and less than as many again."""
    service = KNOWN["dolly-v2-3b", 2]
    step = result("full_size")["figures"]["costs"]["int8"]["verify"]
    for seconds, (prompt, answer) in zip(service.seconds, record_lengths(), strict=True):
        prompts = -(-prompt // 9) * (2 * step[8] + 0.02)
        assert answer * step[0] < seconds < 2 * answer * step[0] + prompts
    assert service.basis == "predicted"
    assert service.memory_bytes > PAIRS["dolly-v2-3b"].memory_bytes
