"""A race that a visitor has repeated."""

import re

import pytest

from pipeline.request import Request
from pipeline.trace.metrics import median_interval
from tests.fake_dolly import FakeDolly, action, asked
from tests.traces import WORDS
from ui.run.repeated import TIMES
from ui.run.turn import Turn
from ui.session import Session


def repeat(dolly, **settings):
    """The changes while it is repeated."""
    what = asked(dolly, Request("Say something", **settings))
    return Session().act(action("repeat"), what, Turn())


def test_ten_races_have_a_median_with_its_interval():
    dolly = FakeDolly(WORDS)
    *_, last = repeat(dolly)
    assert len(dolly.started) == TIMES
    assert last.status.line == f"{TIMES} races done"
    middle, low, high, least, most = map(float, re.findall(r"\d+\.\d\d", last.views["races"]))
    speedups = [run.trace().speedup for run in dolly.started]
    expected = (*median_interval(speedups), min(speedups), max(speedups))
    assert (low, middle, high, least, most) == pytest.approx(expected, abs=0.006)
    assert f"Identical texts in {TIMES} of {TIMES}." in last.views["races"]


def test_sampled_races_say_nothing_of_identical_texts():
    *_, last = repeat(FakeDolly(WORDS), temperature=0.7)
    assert "identical" not in last.views["races"]


def test_texts_too_short_to_compare_end_the_races_with_a_line():
    *_, last = repeat(FakeDolly(WORDS), max_new_tokens=3)
    assert last.status.state == "error"
    assert "fewer than 8 tokens” — ask for a longer answer" in last.notice
