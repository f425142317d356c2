"""Counts and shares in words, as all that shows them writes them."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """The number and its noun, whose plural is regular: "1 token", "2 tokens"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def percent(share: float, digits: int = 0) -> str:
    """A share in whole per cent, where the counts behind it carry no more digits."""
    return f"{100 * share:.{digits}f} %"
