"""The seconds of a race and the memory of a replica, from the committed measurements."""

import json
from itertools import pairwise
from statistics import fmean, quantiles

import pytest

from lab.load.service import record_lengths, services
from pipeline.models.pairs import EMBEDDED, PAIRS

KNOWN = {(service.pair, service.cores): service for service in services()}
EVALUATION = json.loads((EMBEDDED / "evaluation.json").read_text())


def result(name):
    return json.loads((EMBEDDED.parents[2] / "lab" / "results" / f"{name}.json").read_text())


def test_the_lengths_are_like_those_of_all_held_out_answers():
    """Of 200 others, by their quartiles, and of 500, by their mean."""
    answers = [length.answer for length in record_lengths()]
    assert len(answers) == len(EVALUATION["reading"]) == 60
    for ours, theirs in zip(quantiles(answers, n=4), EVALUATION["answers"]["tokens"], strict=True):
        assert ours == pytest.approx(theirs, rel=0.15)
    lossless = result("lossless")["rows"][0]  # all have the same texts
    assert fmean(answers) == pytest.approx(lossless["tokens"] / lossless["races"], rel=0.1)


def test_a_race_of_the_embedded_pair_takes_what_both_its_answers_took():
    """The table of the paper has whole answers, whose lengths differ a little."""
    (whole,) = (
        row
        for row in result("paper")["rows"]
        if (row["new_tokens"], row["records"], row["ends"]) == (100, "held out", True)
    )
    both = whole["slow_s"] + whole["page_s"]
    assert KNOWN["dolly-smol", 2].mean == pytest.approx(both, rel=0.05)
    assert KNOWN["dolly-smol", 2].memory_bytes > PAIRS["dolly-smol"].memory_bytes


def test_one_core_takes_the_time_of_both():
    one, two = (KNOWN["dolly-smol", cores] for cores in (1, 2))
    assert one.mean / two.mean == pytest.approx(2, rel=0.05)
    assert one.variation == pytest.approx(two.variation)


def test_larger_pairs_take_longer_and_more_memory_and_say_how_that_is_known():
    order = ("dolly-smol", "dolly-v2-3b", "dolly-v2-12b")
    assert [KNOWN[pair, 2].basis for pair in order] == ["derived", "predicted", "projected"]
    for less, more in pairwise(order):
        assert KNOWN[less, 2].mean < KNOWN[more, 2].mean
        assert KNOWN[less, 2].memory_bytes < KNOWN[more, 2].memory_bytes
    for pair in order[1:]:
        assert KNOWN[pair, 2].memory_bytes > PAIRS[pair].memory_bytes


def test_a_token_of_the_3b_takes_what_its_passes_took():
    """A race has the autoregressive passes of its answer, and less than as many again."""
    service = KNOWN["dolly-v2-3b", 2]
    step = result("full_size")["figures"]["costs"]["int8"]["verify"]
    lengths = record_lengths()
    for seconds, length in zip(service.seconds, lengths, strict=True):
        prompts = -(-length.prompt // 9) * (2 * step[8] + 0.02)
        assert length.answer * step[0] < seconds < 2 * length.answer * step[0] + prompts
