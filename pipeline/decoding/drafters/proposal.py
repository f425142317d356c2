"""A draft while it is drawn, token by token, from a model's logits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.decoding.drafters.drafter import ShouldContinue
from pipeline.decoding.sampling import (
    Logits,
    Probs,
    SamplingParams,
    greedy_token,
    probabilities,
    sample,
)
from pipeline.decoding.verification.tokens import Draft


class Proposal:
    """Draws tokens and keeps the distribution of each.

    Distributions are shaped over the tokens that both models have, and padded with zeros: a token
    that the draft model lacks is one that it never proposes.

    Args:
        vocab_size: the target's.
        token_ids: the tokens of the draft model's logits; None if logit i is of token i.
        params: shape the distributions.

    Attributes:
        tokens: drawn so far.
    """

    def __init__(
        self, vocab_size: int, token_ids: NDArray[np.int64] | None, params: SamplingParams
    ) -> None:
        self.tokens: list[int] = []
        self._vocab_size, self._token_ids, self._params = vocab_size, token_ids, params
        self._logits: list[Logits] = []
        self._probs: list[Probs] = []

    def draw(self, logits: Logits, rng: np.random.Generator) -> None:
        """Adds a token; `logits` are float32[n]."""
        common, token_ids = logits[: self._vocab_size], self._token_ids
        self._logits.append(common)
        if not self._params.temperature:  # a greedy draft is certain: no distribution to keep
            best = greedy_token(common, "draft")
            self.tokens.append(best if token_ids is None else int(token_ids[best]))
            return
        probs = probabilities(common[None], self._params, "draft")[0]
        self._probs.append(probs)
        drawn = sample(probs, rng)
        self.tokens.append(drawn if token_ids is None else int(token_ids[drawn]))

    def ends(self, end_ids: frozenset[int], should_continue: ShouldContinue | None) -> bool:
        """Whether the last token is the draft's last."""
        if self.tokens[-1] in end_ids:
            return True
        if should_continue is None:
            return False
        return not should_continue(_confidence(self._logits[-1]))

    def draft(self, passes: int) -> Draft:
        """The tokens as a draft, which took so many forward passes."""
        tokens = tuple(self.tokens)
        if self._params.temperature:
            return Draft(tokens, self._padded(), passes=passes)
        return Draft(tokens, None, tuple(self._logits), self._token_ids, passes=passes)

    def _padded(self) -> Probs:
        """The distributions over the target's vocabulary."""
        padded = np.zeros((len(self._probs), self._vocab_size), np.float32)
        for row, probs in zip(padded, self._probs, strict=True):
            row[slice(len(probs)) if self._token_ids is None else self._token_ids] = probs
        return padded


def _confidence(logits: Logits) -> float:
    """The probability of the likeliest token."""
    return 1 / float(np.exp(logits - logits.max()).sum())
