"""How many tokens to draft in a round: a fixed number, or as many as pay.

Knows seconds, counts and confidences; no tokens, no models.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from pipeline.costs import Costs
from pipeline.drafters import GoOn
from pipeline.events import Step

_STAKE = 0.02  # of the autoregressive time, that may be lost on finding out whether drafts pass
_ENTRY, _MOST = 1.0, 4.0  # autoregressive steps: credit at the start, and the most that is kept
_BINS = 10  # of confidence, each with its own acceptance
_GUESS, _DOUBT = 0.8, 2.0  # acceptance before anything was tested, and the tests it counts for
_MEMORY = 0.9  # weight of what was before, when rates and times are averaged


class DraftLength(Protocol):
    """Decides, round by round of one generation, how much is drafted."""

    def most(self) -> int:
        """Tokens to draft in the round that begins, at most; 0 if drafting does not pay."""
        ...

    @property
    def go_on(self) -> GoOn | None:
        """Whether to draft another token after one, by the confidence in it; None: always."""
        ...

    def learn(self, step: Step) -> None:
        """What became of the round, and what it took."""
        ...


class Fixed:
    """The same number in each round, as in Chen et al. 2023."""

    go_on = None

    def __init__(self, length: int) -> None:
        self._length = length

    def most(self) -> int:
        return self._length

    def learn(self, step: Step) -> None:
        pass


class Auto:
    """As many tokens as pay at the present rate, and none where speculation loses.

    Another token is drafted while what it, or more of them, can be expected to add is more than
    what the time they take would yield at the rate reached so far. How often a token passes is
    estimated for each level of the drafter's confidence in it, from what passed before.

    What can be lost is a matter of credit, counted in autoregressive steps: a round earns what it
    saved, or pays what it lost, and a round without a draft earns `_STAKE`. No draft is longer than
    the credit covers if none of it passes. So a useless drafter costs that share and the credit
    of the start, no more, and is still tried again.

    It goes by measured times: sampled text follows the target's distribution for any choice, but
    another run with the same seed may draw another text.
    """

    def __init__(self, costs: Costs) -> None:
        self._draft_s, self._verify_s = costs.draft, np.array(costs.verify)
        self._credit = _ENTRY
        self._tokens, self._seconds = 1.5, self._verify_s[0]  # of rounds with a draft, fading
        self._tested = np.full(_BINS, _DOUBT)
        self._passed = _DOUBT * (np.arange(_BINS) + 0.5) / _BINS
        self._bins: list[int] = []  # of the tokens drafted in this round
        self._reach = 1.0  # chance that all of them pass

    def most(self) -> int:
        self._bins, self._reach = [], 1.0
        # Two tokens for a draft and its verification: not even a perfect draft does better.
        could_pay = self._draft_s + self._verify_s[1] < 2 * self._verify_s[0]
        return len(self._verify_s) - 1 if could_pay and self._affords(1) else 0

    def go_on(self, confidence: float) -> bool:
        bin_ = min(int(confidence * _BINS), _BINS - 1)
        self._bins.append(bin_)
        self._reach *= self._passed[bin_] / self._tested[bin_]
        drafted = len(self._bins)
        if drafted == len(self._verify_s) - 1 or not self._affords(drafted + 1):
            return False
        # All longer drafts, not the next token alone: verification gets dearer in steps.
        rate = max(self._tokens / self._seconds, 1 / self._verify_s[0])
        more = np.arange(1, len(self._verify_s) - drafted)
        gains = self._reach * np.cumsum(self._acceptance() ** more)
        costs = more * self._draft_s + self._verify_s[drafted + more] - self._verify_s[drafted]
        return bool((gains > rate * costs).any())

    def learn(self, step: Step) -> None:
        drafted, usual = len(step.drafted), self._verify_s[0]
        self._verify_s *= (step.verify_s / self._verify_s[drafted]) ** (1 - _MEMORY)
        if not drafted:
            self._credit = min(self._credit + _STAKE, _MOST)
            return
        saved = len(step.tokens) - step.seconds / usual
        self._credit = min(self._credit + saved, _MOST)
        self._draft_s += (1 - _MEMORY) * (step.draft_s / drafted - self._draft_s)
        self._tokens = _MEMORY * self._tokens + len(step.tokens)
        self._seconds = _MEMORY * self._seconds + step.seconds
        for place, bin_ in enumerate(self._bins[: step.accepted + 1]):
            self._tested[bin_] += 1
            self._passed[bin_] += place < step.accepted

    def _affords(self, drafted: int) -> bool:
        """Whether the credit covers what is lost if none of them passes."""
        lost_s = drafted * self._draft_s + self._verify_s[drafted] - self._verify_s[0]
        return bool(lost_s <= self._credit * self._verify_s[0])

    def _acceptance(self) -> float:
        """Of a token whose confidence is not known yet."""
        first = _DOUBT * _BINS  # the bins' own guesses do not count
        passed, tested = self._passed.sum() - first / 2, self._tested.sum() - first
        return float((_GUESS * _DOUBT + passed) / (_DOUBT + tested))
