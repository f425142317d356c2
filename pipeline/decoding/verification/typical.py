"""Typical acceptance: takes drafts that the target finds plausible. Lossy, by choice.

Cai et al. 2024 (Medusa, arXiv 2401.10774, section 2.3.1). A drafted token passes if the target's
probability of it exceeds min(EPSILON, DELTA * exp(-H)), where H is the entropy of the target's
distribution: the less certain the target is, the less likely a token may be. How likely the draft
was to propose it has no part in that, so the text follows neither the target's distribution nor the
draft's.

Medusa takes the target's most likely token where no draft passes. Here it is sampled from the
target's distribution, so that a round without a draft is the same as with any verification.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pipeline.decoding.events import Origin
from pipeline.decoding.sampling import Probs, Rows, sample
from pipeline.decoding.verification.tokens import Verdict, draft_probabilities, residual

EPSILON, DELTA = 0.09, 0.3  # Medusa's own; DELTA is the square root of EPSILON


def verify_typical(
    target_probs: Rows,
    draft_probs: Probs | None,
    draft_tokens: Sequence[int],
    rng: np.random.Generator,
) -> Verdict:
    """Accepts drafted tokens in order, until the first that is not typical.

    Args:
        target_probs, draft_probs, draft_tokens: as of `verify`.

    Returns:
        `accept_prob` is 1 or 0, up to the first 0: the test needs no random number.
    """
    target_prob: list[float] = []
    accepted = 0
    for place, token in enumerate(draft_tokens):
        row = target_probs[place]
        target_prob.append(float(row[token]))
        if not typical(target_prob[place], row):
            break
        accepted += 1
    row = target_probs[accepted]
    if accepted < len(draft_tokens):
        origin = Origin.RESAMPLED
        row = residual(row, None, draft_tokens[accepted])
    else:
        origin = Origin.BONUS if accepted else Origin.TARGET
    return Verdict(
        accepted=accepted,
        token=sample(row, rng),
        origin=origin,
        draft_prob=tuple(draft_probabilities(draft_tokens, draft_probs)),
        target_prob=tuple(target_prob),
        accept_prob=(1.0,) * accepted + (0.0,) * (len(target_prob) - accepted),
        uniform=(None,) * len(draft_tokens),
    )


def typical(probability: float, row: Probs) -> bool:
    """Whether a token of that probability is typical of the distribution float32[vocab]. The
    entropy, which takes a pass over the row, is needed for unlikely tokens only.
    """
    return probability > EPSILON or probability > threshold(row)


def threshold(row: Probs) -> float:
    """The probability that a typical token of a distribution float32[vocab] exceeds."""
    likely = row[row > 0]
    entropy = -float(np.dot(likely, np.log(likely)))
    return min(EPSILON, DELTA * math.exp(-entropy))
