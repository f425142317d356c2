"""Whether an answer repeats itself, and which of its tokens count."""

import pytest

from pipeline.decoding.events import FinishReason, Origin
from pipeline.trace.record import Lane, Token
from pipeline.trace.repetition import body, repeats


@pytest.mark.parametrize(
    ("tokens", "text", "repeating"),
    [
        ([9, *[3] * 8], "", True),
        ([9, *[3] * 7], "", False),  # as in 10,000,000
        ([9, *[1, 2, 3] * 3], "", True),
        ([*[1, 2, 3] * 3, 9], "", False),  # it found an end
        ([*range(40)] * 3, "", True),
        ([*range(41)] * 3, "", False),
        ([1, 2, *[3, 4, 5] * 3, 3, 4], "", True),  # cut within a repetition
        ([], "1. A cat\n2. A dog\n3. A cat\n4. A cat", True),
        ([], "- A cat\n* A cat\nA cat", True),
        ([], "1. A cat\n2. A dog\n3. A cat", False),
        ([], "}\n}\n}\n\n\n\n---", False),
        ([], "", False),
    ],
)
def test_an_answer_repeats_itself_that_ends_in_the_same_or_has_a_line_three_times(
    tokens, text, repeating
):
    assert repeats(tokens, text) is repeating


def test_the_end_key_and_the_blanks_before_it_are_no_part_of_an_answer():
    texts = ("Yes", "\n", ".", "\n", " ", "")
    tokens = tuple(Token(id, text, Origin.TARGET, id, 0.1) for id, text in enumerate(texts))
    assert body(Lane(0.1, FinishReason.STOP, "".join(texts), tokens, ())) == [0, 1, 2]
