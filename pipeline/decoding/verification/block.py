"""Block verification: tests the tokens of a draft together (Sun et al. 2024, arXiv 2403.10444).

Where a token's probability under the target is more than the draft's, token-by-token verification
accepts it and forgets by how much. Block verification lets that make up for a later token, or an
earlier one, that the target likes less. For any draft the emitted tokens follow the target's
distribution, and in expectation at least as many drafted tokens are accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from pipeline.decoding.events import Origin
from pipeline.decoding.sampling import Probs, Rows, sample
from pipeline.decoding.verification.tokens import Verdict, draft_probabilities, residual, verify


def verify_block(
    target_probs: Rows,
    draft_probs: Probs | None,
    draft_tokens: Sequence[int],
    rng: np.random.Generator,
) -> Verdict:
    """Accepts the longest part of the draft that passes, from its beginning (algorithm 2).

    For a deterministic draft both ways are the same, and `verify` is used.

    Args:
        target_probs, draft_probs, draft_tokens: as of `verify`.

    Returns:
        `accept_prob` is the probability that the draft is accepted up to a token, if not further;
        `uniform` has a number where that was tested: from the last token down to the accepted one.
    """
    count = len(draft_tokens)
    if draft_probs is None or not count:
        return verify(target_probs, draft_probs, draft_tokens, rng)
    draft_prob = draft_probabilities(draft_tokens, draft_probs)
    target_prob = [float(target_probs[i][token]) for i, token in enumerate(draft_tokens)]

    # kept[i]: with which probability the first i tokens should be accepted.
    ratios = (p / q for p, q in zip(target_prob, draft_prob, strict=True))
    kept = [*accumulate(ratios, lambda so_far, ratio: min(1.0, so_far * ratio), initial=1.0)]
    longer = [  # with which probability more than the first i are
        float(np.minimum(kept[i] * target_probs[i], draft_probs[i]).sum()) for i in range(count)
    ]
    accept_prob = [_of_the_rest(kept[i], longer[i]) for i in range(1, count)] + [kept[count]]

    uniform: list[float | None] = [None] * count
    accepted = count
    while accepted:
        drawn = uniform[accepted - 1] = rng.random()
        if drawn < accept_prob[accepted - 1]:
            break
        accepted -= 1

    row = target_probs[accepted]
    if accepted < count:
        row = residual(row, draft_probs[accepted], draft_tokens[accepted], kept[accepted])
    return Verdict(
        accepted=accepted,
        token=sample(row, rng),
        origin=Origin.RESAMPLED if accepted < count else Origin.BONUS,
        draft_prob=tuple(draft_prob),
        target_prob=tuple(target_prob),
        accept_prob=tuple(accept_prob),
        uniform=tuple(uniform),
    )


def _of_the_rest(kept: float, longer: float) -> float:
    """The probability of accepting so many tokens if no more are accepted, so that they are kept
    with probability `kept` in all.
    """
    return (kept - longer) / (1 - longer) if longer < kept else 0.0
