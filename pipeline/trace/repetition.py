"""Whether an answer repeats itself, or has collapsed into a few tokens."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from pipeline.trace.record import Lane

_LONGEST_PERIOD, _REPEATS, _LEAST_REPEATED = 40, 3, 8  # tokens; times; tokens
_LAST, _KINDS = 24, 3  # tokens; different ones of them
_NUMBER_OR_BULLET = re.compile(r"^[\W\d_]+")


def repeats(tokens: Sequence[int], text: str) -> bool:
    """Whether an answer repeats itself: its last tokens are the same 1 to 40 tokens three times or
    more in a row, 8 tokens or more; or three of its lines are the same, their numbers and bullets
    apart.

    Args:
        tokens: the answer's, without the end key and blanks before it.
    """
    for period in range(1, _LONGEST_PERIOD + 1):
        times = max(_REPEATS, math.ceil(_LEAST_REPEATED / period))
        if repeated(tokens, period) >= period * (times - 1):
            return True
    lines = Counter(_NUMBER_OR_BULLET.sub("", line).strip() for line in text.splitlines())
    del lines[""]
    return max(lines.values(), default=0) >= _REPEATS


def collapsed(tokens: Sequence[int]) -> bool:
    """Whether the last 24 tokens, blanks included, are of three kinds at most: they need not come
    in the same order again and again.
    """
    return len(tokens) >= _LAST and len({*tokens[-_LAST:]}) <= _KINDS


def repeated(tokens: Sequence[int], period: int) -> int:
    """How many of the last tokens, without a gap, are the same as the token `period` before."""
    start = len(tokens)
    while start > period and tokens[start - 1] == tokens[start - 1 - period]:
        start -= 1
    return len(tokens) - start


def body(lane: Lane) -> list[int]:
    """The ids of a lane's tokens, without the end key and blanks before it."""
    tokens = list(lane.tokens)
    while tokens and not tokens[-1].text.strip():
        tokens.pop()
    return [token.id for token in tokens]
