"""Verification of a draft: accept, resample, or take a bonus token.

Speculative sampling as in Chen et al. 2023 (arXiv 2302.01318, algorithm 2) and Leviathan et al.
2023 (arXiv 2211.17192): for any draft, the emitted tokens follow the target's distribution. Pure
functions of arrays and a generator, without models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.decoding.events import Origin, Verification
from pipeline.decoding.sampling import Logits, Probs, Rows, sample


@dataclass(frozen=True, slots=True)
class Draft:
    """Proposed tokens, and the distributions they were sampled from.

    Attributes:
        tokens: the g proposed ids.
        probs: float32[g, vocab]; None for a deterministic draft, whose tokens follow from the text
            alone: each from a distribution with all its mass on it.
        logits: a float32[n] for each token of a model's greedy draft, to show what else was
            likely; verification does not need them.
        token_ids: int64[n], the tokens that these logits are of; None if those of the first n ids.
        remembered: whether it was copied from an earlier text.
        passes: forward passes that made it.
    """

    tokens: tuple[int, ...] = ()
    probs: Probs | None = None
    logits: tuple[Logits, ...] = ()
    token_ids: NDArray[np.int64] | None = None
    remembered: bool = False
    passes: int = 0

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def from_model(self) -> bool:
        """Whether a model computed it: a copy has neither distributions nor logits."""
        return self.probs is not None or bool(self.logits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Verification):
    """The result of verification: the accepted drafts, and the `token` that follows them."""

    token: int
    origin: Origin


Verify = Callable[
    [Rows, Probs | None, Sequence[int], np.random.Generator], Verdict
]  # with the arguments of `verify`


def verify(
    target_probs: Rows,
    draft_probs: Probs | None,
    draft_tokens: Sequence[int],
    rng: np.random.Generator,
) -> Verdict:
    """Tests drafted tokens in order, until the first rejection.

    Args:
        target_probs: g + 1 rows of float32[vocab], row i the target's distribution after i drafted
            tokens.
        draft_probs: float32[g, vocab], what each token was sampled from; None if deterministic.
        draft_tokens: the g proposed ids; g may be 0.
    """
    draft_prob = draft_probabilities(draft_tokens, draft_probs)
    target_prob: list[float] = []
    accept_prob: list[float] = []
    uniform: list[float | None] = [None] * len(draft_tokens)
    accepted = 0
    for i, token in enumerate(draft_tokens):
        target_prob.append(float(target_probs[i][token]))
        chance = min(1.0, target_prob[i] / draft_prob[i])
        accept_prob.append(chance)
        if 0 < chance < 1:
            uniform[i] = rng.random()
        if chance < 1 and not _passes(chance, uniform[i]):
            break
        accepted += 1

    if accepted < len(draft_tokens):
        origin = Origin.RESAMPLED
        draft_row = None if draft_probs is None else draft_probs[accepted]
        remaining = residual(target_probs[accepted], draft_row, draft_tokens[accepted])
        token = sample(remaining, rng)
    else:
        origin = Origin.BONUS if accepted else Origin.TARGET
        token = sample(target_probs[accepted], rng)
    return Verdict(
        accepted=accepted,
        token=token,
        origin=origin,
        draft_prob=tuple(draft_prob),
        target_prob=tuple(target_prob),
        accept_prob=tuple(accept_prob),
        uniform=tuple(uniform),
    )


def draft_probabilities(draft_tokens: Sequence[int], draft_probs: Probs | None) -> list[float]:
    """The draft's probability of each drafted token. Plain floats: for a handful of tokens, each
    call into NumPy takes longer than the arithmetic.
    """
    if draft_probs is None:
        return [1.0] * len(draft_tokens)
    return [float(draft_probs[i, token]) for i, token in enumerate(draft_tokens)]


def _passes(chance: float, uniform: float | None) -> bool:
    return uniform is not None and uniform < chance


def residual(target_row: Probs, draft_row: Probs | None, rejected: int, kept: float = 1.0) -> Probs:
    """The distribution to resample from: max(0, kept * target - draft), not normalised.

    It is all zeros only if rounding made the two rows equal, where the probability of a rejection
    was zero; the target's own row is then correct.
    """
    if draft_row is None:
        remaining = target_row.copy()
        remaining[rejected] = 0
    else:
        remaining = np.maximum(kept * target_row - draft_row, 0)
    return remaining if remaining.any() else target_row
