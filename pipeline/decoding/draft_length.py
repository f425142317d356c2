"""How many tokens to draft in a round: a fixed number, or as many as pay.

Knows seconds, counts and confidences; no tokens, no models. Plain floats: it is asked in every
round, and for so few numbers each call into NumPy takes longer than the arithmetic.

A round also has a width, the tokens that its target run is padded to: a run of another width than
the last costs extra (`Costs.switch`), and one that is a few tokens too wide costs little.
"""

from __future__ import annotations

from typing import Protocol

from pipeline.decoding.costs import Costs
from pipeline.decoding.drafters import GoOn
from pipeline.decoding.events import Step

_PATIENCE = 4  # rounds without a draft, before their runs are no longer padded for one
_GUESS, _DOUBT = 0.6, 1.0  # chance of passing before anything was tested; tests that it counts for
_MEMORY = 0.97  # weight of what was before, when chances are averaged
_TIME_MEMORY, _CAUTION = 0.9, 2.0  # and when times are; how much one round may differ
_WORTH = 1.03  # times as fast as autoregression: drafting for less is not worth the risk
_FADING = 0.995  # of what was learned, with each step that does not draft: so it is tried again
_HORIZON = 40  # tokens over which a change of width must earn what it costs
_LEVELS = 10  # of confidence, each with its own chance of passing


class DraftLength(Protocol):
    """Decides, round by round of one generation, how much is drafted."""

    def most(self, room: int) -> int:
        """Tokens to draft in the round that begins, at most; 0 if drafting does not pay. There is
        room for so many.
        """
        ...

    @property
    def go_on(self) -> GoOn | None:
        """Whether to draft another token after one, by the confidence in it; None: always."""
        ...

    def width(self, drafted: int) -> int:
        """Tokens that the round's target run is padded to; one more than of the draft to keep."""
        ...

    def learn(self, step: Step, by_model: bool) -> None:
        """What became of the round, and what it took. `by_model`: a model drafted; what was copied
        says nothing of what that takes.
        """
        ...


class Fixed:
    """The same number in each round, as in Chen et al. 2023."""

    go_on = None

    def __init__(self, length: int) -> None:
        self._length = length
        self._idle = 0  # rounds since something was drafted: a look-up finds nothing for long

    def most(self, room: int) -> int:
        return min(self._length, room)

    def width(self, drafted: int) -> int:
        self._idle = 0 if drafted else self._idle + 1
        return self._length + 1 if self._idle <= _PATIENCE else 1

    def learn(self, step: Step, by_model: bool) -> None:
        pass


class Experience:
    """What runs take, and how often drafted tokens passed: by their place in the draft, and by the
    confidence in them.

    One belongs to a pair and a drafter, and outlives a generation, so that the next one need not
    find out anew. What is recent weighs more.

    Args:
        costs: as measured before anything was generated.
    """

    def __init__(self, costs: Costs) -> None:
        step = costs.verify[0]  # what everything is counted in
        self.draft = costs.draft / step
        self.verify = [seconds / step for seconds in costs.verify]  # of 1, 2, … tokens
        self.switch = costs.switch / step
        self._places = [_Count() for _ in costs.verify[1:]]
        self._levels = [_Count() for _ in range(_LEVELS)]

    def by_place(self) -> list[float]:
        """Of each token of a draft, given that those before it passed. A place where nothing was
        tested yet is taken for as good as the one before it.
        """
        chances, chance = [], _GUESS
        for count in self._places:
            chance = count.chance(chance)
            chances.append(chance)
        return chances

    def by_confidence(self, confidence: float) -> float:
        level = _level(confidence)
        return self._levels[level].chance((level + 0.5) / _LEVELS)

    def learn(self, accepted: int, drafted: int, confidences: list[float]) -> None:
        """Of one draft; none at all, where one was wanted, counts as one that did not pass."""
        for place in range(min(accepted + 1, max(drafted, 1))):
            self._places[place].add(place < accepted)
        for place, confidence in enumerate(confidences[: min(accepted + 1, drafted)]):
            self._levels[_level(confidence)].add(place < accepted)

    def time(self, draft_s: float, verify_s: float, width: int) -> None:
        """Of drafting one token, and of the run that followed: both at the speed that the machine
        had just then. What a single round says is taken with caution.
        """
        draft = draft_s / (verify_s / self.verify[width - 1])
        draft = min(max(draft, self.draft / _CAUTION), self.draft * _CAUTION)
        self.draft += (1 - _TIME_MEMORY) * (draft - self.draft)

    def fade(self) -> None:
        """For a step that tested nothing."""
        for count in self._places:
            count.fade(_FADING)


class Auto:
    """As many tokens as pay, by what runs cost and how often drafts passed; none, where none pay.

    Time is counted in autoregressive steps. A draft of k tokens, in a round of width w, yields
    1 + p1 + p1 p2 + … tokens for k drafted tokens and a run of w: the k and w with the best rate
    are taken, but another width only if it earns its cost within `_HORIZON` tokens. Within a round,
    drafting stops where the confidence says that the next token is not worth its time.

    It goes by measured times: sampled text follows the target's distribution for any choice, but
    another run with the same seed may draw another text.
    """

    def __init__(self, experience: Experience) -> None:
        self._experience = experience
        self._width, self._last_width = 1, 0
        self._most, self._price = 0, 0.0  # of this round: tokens, and what each has to be worth
        self._chances = experience.by_place()
        self._confidences: list[float] = []
        self._reach, self._expected = 1.0, 0.0  # that all drafted so far pass; how many do

    def most(self, room: int) -> int:
        known = self._experience
        self._chances = known.by_place()
        draft = known.draft
        expected = tokens = 1.0  # of a draft of 0, 1, 2, … tokens
        most = best = 0
        rate_here, rate = _WORTH / known.verify[self._width - 1], _WORTH
        for count, chance in enumerate(self._chances, start=1):
            expected *= chance
            tokens += expected
            if (reached := tokens / (count * draft + known.verify[count])) > rate:
                best, rate = count, reached
            if count < self._width:
                reached = tokens / (count * draft + known.verify[self._width - 1])
                if reached > rate_here:
                    most, rate_here = count, reached
        if _HORIZON / rate_here - _HORIZON / rate > known.switch:
            self._width, most = best + 1, best
        if not most and not draft:
            most = len(self._chances)  # a copy costs nothing: have a look
        self._price = draft * max(rate, rate_here)
        self._confidences, self._reach, self._expected = [], 1.0, 0.0
        self._most = min(most, room)
        return self._most

    def go_on(self, confidence: float) -> bool:
        self._confidences.append(confidence)
        self._reach *= self._experience.by_confidence(confidence)
        self._expected += self._reach
        drafted = len(self._confidences)
        return drafted < self._most and self._reach * self._chances[drafted] > self._price

    def width(self, drafted: int) -> int:
        known = self._experience
        if self._width == 1 and drafted:  # a copy, where drafting did not pay: there and back
            pays = self._expected > known.verify[drafted] - 1 + 2 * known.switch
            self._width = drafted + 1 if pays else 1
        return self._width

    def learn(self, step: Step, by_model: bool) -> None:
        known, drafted = self._experience, len(step.drafted)
        if by_model and drafted and self._width == self._last_width:
            known.time(step.draft_s / drafted, step.verify_s, self._width)
        self._last_width = self._width
        if self._width == 1:
            known.fade()
        elif self._most:
            known.learn(step.accepted, drafted, self._confidences)


class _Count:
    """Of tests, and of those that passed."""

    def __init__(self) -> None:
        self._passed = self._tested = 0.0

    def chance(self, guess: float) -> float:
        return (self._passed + _DOUBT * guess) / (self._tested + _DOUBT)

    def add(self, passed: bool) -> None:
        self.fade(_MEMORY)
        self._passed += passed
        self._tested += 1

    def fade(self, weight: float) -> None:
        self._passed *= weight
        self._tested *= weight


def _level(confidence: float) -> int:
    return min(int(confidence * _LEVELS), _LEVELS - 1)
