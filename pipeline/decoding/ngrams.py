"""Where an n-gram last occurred in some texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Place(NamedTuple):
    """Where an n-gram was found.

    Attributes:
        text: that it stands in.
        after: index of the token that follows it there.
        size: the length of the n-gram, in tokens.
    """

    text: Sequence[int] = ()
    after: int = 0
    size: int = 0

    def following(self, count: int) -> tuple[int, ...]:
        """At most `count` tokens that follow the n-gram."""
        return tuple(self.text[self.after : self.after + count])


class NGrams:
    """Texts, searched for the longest n-gram that another text ends with.

    Args:
        sizes: lengths of the n-grams, in tokens, the longest first.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._text: list[int] = []
        self._last: dict[tuple[int, ...], Place] = {}

    def begin(self) -> None:
        """A new text: tokens read from now on belong to it."""
        self._text = []

    def read(self, tokens: Iterable[int]) -> None:
        """The text goes on."""
        text = self._text
        for token in tokens:
            for size in self._sizes:
                if size <= len(text):
                    self._last[tuple(text[-size:])] = Place(text, len(text), size)
            text.append(token)

    def find(self, text: Sequence[int]) -> Place:
        """The latest occurrence of the longest n-gram that `text` ends with and that something
        follows; a place of size 0 if there is none.
        """
        for size in self._sizes:
            found = self._last.get(tuple(text[-size:]))
            if found:
                return found
        return Place()
