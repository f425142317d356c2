"""The answer memory: earlier texts, which a drafter may copy from."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from pipeline.decoding.ngrams import NGrams, Place

# Longer than the end that all Dolly prompts share, so that a new question does not find another's
# answer. Where a chat template ends in more, the first draft may be a wrong copy.
_SIZES = (16, 8)


class AnswerMemory:
    """Token ids of earlier prompts and answers, the latest ones up to a limit.

    Its owner decides whose texts it holds: how fast a text is copied tells that it was there.

    Args:
        limit: how many tokens it holds at most.
    """

    def __init__(self, limit: int = 16_384) -> None:
        self._limit = limit
        self._texts: OrderedDict[tuple[int, ...], None] = OrderedDict()
        self._ngrams = NGrams(_SIZES)

    def __len__(self) -> int:
        """Tokens that it holds."""
        return sum(map(len, self._texts))

    def add(self, text: Sequence[int]) -> None:
        """Remembers a text as the latest, and forgets the oldest beyond the limit."""
        self._texts[tuple(text)] = None
        self._texts.move_to_end(tuple(text))
        while len(self) > self._limit:
            self._texts.popitem(last=False)
        self._ngrams = NGrams(_SIZES)
        for kept in self._texts:
            self._ngrams.begin()
            self._ngrams.read(kept)

    def find(self, text: Sequence[int]) -> Place:
        """As `NGrams.find`, in what is remembered."""
        return self._ngrams.find(text)
