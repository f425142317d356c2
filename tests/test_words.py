"""Counts and shares in words."""

import pytest

from pipeline.words import counted, percent


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 tokens"), (1, "1 token"), (2, "2 tokens"), (21, "21 tokens")]
)
def test_what_is_one_is_not_counted_as_many(number, words):
    assert counted(number, "token") == words


def test_a_share_is_in_whole_per_cent():
    assert [percent(share) for share in (0, 1 / 3, 0.996, 1)] == ["0 %", "33 %", "100 %", "100 %"]
