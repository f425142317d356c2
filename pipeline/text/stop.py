"""Stop texts: they end a generated text, and are not part of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol


class Detokenizer(Protocol):
    """Streams one sequence's text."""

    def push(self, token: int) -> str:
        """The whole characters that `token` completes; "" if none, or for the end key."""
        ...


class StopFilter:
    """Cuts a streamed text before the first stop text: the one that is complete first and, of
    several that are, the longest. How the text is cut into parts makes no difference.

    Args:
        stops: the stop texts, none of them empty.

    Attributes:
        found: whether a stop text is complete; the text has ended then.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.found = False
        self._stops = sorted(stops, key=len, reverse=True)
        self._held = ""  # the longest end of the text that begins a stop text

    def push(self, text: str) -> str:
        """The text that is now certain to come before any stop text."""
        if not self._stops:
            return text
        certain = ""
        for character in text:
            if self.found:
                break
            held = self._held + character
            complete = next((stop for stop in self._stops if held.endswith(stop)), "")
            self.found, self._held = bool(complete), "" if complete else self._beginning(held)
            certain += held[: len(held) - len(complete or self._held)]
        return certain

    def rest(self) -> str:
        """The text that was withheld, once nothing follows it."""
        rest, self._held = self._held, ""
        return rest

    def _beginning(self, text: str) -> str:
        """The longest end of the text with which a stop text begins."""
        ends = (text[start:] for start in range(len(text)))
        return next((end for end in ends if any(s.startswith(end) for s in self._stops)), "")


def stop_matcher(
    stops: Sequence[str], detokenizer: Callable[[], Detokenizer]
) -> Callable[[], Callable[[int], bool]] | None:
    """For a decoder: returns, for each generation, whether a token completes a stop text, given all
    of its tokens in their order. None without stop texts.
    """

    def of_generation() -> Callable[[int], bool]:
        tokens, text = detokenizer(), StopFilter(stops)

        def completes(token: int) -> bool:
            text.push(tokens.push(token))
            return text.found

        return completes

    return of_generation if stops else None
