"""The honest floor: an interpolated 5-gram model with back-off, over the same tokens.

Witten-Bell smoothing (Witten and Bell 1991): each order is mixed with the next shorter one in
proportion to how many different tokens followed that context. Pure Python, counts only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import log2


class NGram:
    """An n-gram model of token ids; probabilities over the vocabulary sum to one.

    Args:
        sequences: what it is trained on.
        vocab_size: below the shortest order every token is equally likely.
    """

    def __init__(self, sequences: Iterable[Sequence[int]], vocab_size: int, order: int = 5) -> None:
        self._vocab_size, self._order = vocab_size, order
        self._followers: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for sequence in sequences:
            for at, token in enumerate(sequence):
                for length in range(min(order - 1, at) + 1):
                    self._followers[tuple(sequence[at - length : at])][token] += 1

    def probability(self, context: Sequence[int], token: int) -> float:
        """Of `token` after `context`, of which the last `order - 1` tokens count."""
        result = 1 / self._vocab_size
        for length in range(min(self._order - 1, len(context)) + 1):
            followers = self._followers.get(tuple(context[len(context) - length :]))
            if not followers:
                break
            kinds = len(followers)
            result = (followers[token] + kinds * result) / (followers.total() + kinds)
        return result

    def bits(self, prompt: Sequence[int], response: Sequence[int]) -> float:
        """The information in `response` after `prompt`, in bits."""
        whole = [*prompt, *response]
        return -sum(
            log2(self.probability(whole[:at], whole[at])) for at in range(len(prompt), len(whole))
        )
