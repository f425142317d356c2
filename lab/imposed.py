"""An imposed acceptance: how many drafted tokens are accepted is decided, not found.

Models with random weights do not agree, so their own acceptance says nothing. Here the models run
as usual, and the target's distributions are changed after each pass so that the verification comes
to the planned result. Costs, caches, verification and rollback are real; only the acceptance is
not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from pipeline.decoding.sampling import Probs, Rows
from pipeline.decoding.verification.tokens import Verdict, verify


def accepted_counts(
    acceptance: float, length: int, rounds: int, rng: np.random.Generator
) -> list[int]:
    """How many of `length` drafted tokens each round accepts, in random order.

    The counts are quantiles of the distribution, not drawn from it, so that their mean is close to
    the expected number even for a few rounds.

    Args:
        acceptance: the probability that a token is accepted if those before it are.
    """
    quantiles = (rng.permutation(rounds) + 0.5) / rounds
    reached = acceptance ** np.arange(1, length + 1)  # that at least so many are accepted
    return [int(count) for count in (quantiles[:, None] < reached).sum(1)]


class Imposed:
    """A `Verify` for greedy decoding that accepts as many tokens as planned.

    Args:
        accepted: for each draft, how many of its tokens are accepted; at most all are.
    """

    def __init__(self, accepted: Iterable[int]) -> None:
        self._accepted = iter(accepted)

    def __call__(
        self,
        target_probs: Rows,
        draft_probs: Probs | None,
        draft_tokens: Sequence[int],
        rng: np.random.Generator,
    ) -> Verdict:
        """Verifies the draft; the rows of `target_probs` are one-hot, and changed in place."""
        accepted = next(self._accepted)
        for place, token in enumerate(draft_tokens[: accepted + 1]):
            row = target_probs[place]
            if place < accepted:
                row[:] = 0
                row[token] = 1
            elif row[token]:
                row[token], row[(token + 1) % len(row)] = 0, 1
        return verify(target_probs, draft_probs, draft_tokens, rng)
