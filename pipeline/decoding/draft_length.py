"""How many tokens to draft in a round: a fixed number, or as many as pay.

Knows counts, seconds and confidences; no tokens, no models. Plain floats, since it is asked in
every round.

It also decides what the verifying forward pass is padded to. A pass of another number of tokens
than the one before costs extra (`Costs.switch`), and a few tokens of padding cost little.
"""

from __future__ import annotations

from typing import Protocol

from pipeline.decoding.drafters.drafter import ShouldContinue
from pipeline.decoding.economics import AcceptanceStats, best_length, expected_tokens
from pipeline.decoding.events import Step

_MAX_IDLE_ROUNDS = 4  # without a draft, before passes are no longer padded for one
_MIN_GAIN = 1.03  # times as fast as autoregression: drafting for less is not worth the risk
_SWITCH_HORIZON = 40  # tokens within which another padding must earn what it costs


class DraftLength(Protocol):
    """Decides, round by round of one generation, how much is drafted.

    How many sampled tokens are verified is settled by `max_tokens` and `should_continue`, before
    each is sampled: `pad_to` may cut a deterministic draft, and a sampled one never (see
    `Draft.first`).
    """

    def max_tokens(self, budget: int) -> int:
        """Tokens to draft in the round that begins, at most `budget`; 0 if drafting does not
        pay.
        """
        ...

    @property
    def should_continue(self) -> ShouldContinue | None:
        """Whether to draft another token after one, by the confidence in it; None: always."""
        ...

    def pad_to(self, drafted: int) -> int:
        """Tokens to pad the verifying forward pass to, 1 more than of the draft. A deterministic
        draft longer than that is cut.
        """
        ...

    def observe(self, step: Step, from_model: bool) -> None:
        """Learns what became of a round and what it cost.

        Args:
            step: the round.
            from_model: a model drafted. Copies say nothing of what that costs.
        """
        ...


class Fixed:
    """The same number in each round, as in Chen et al. 2023."""

    should_continue = None

    def __init__(self, length: int) -> None:
        self._length = length
        self._idle_rounds = 0  # since something was drafted: a lookup may find nothing for long

    def max_tokens(self, budget: int) -> int:
        return min(self._length, budget)

    def pad_to(self, drafted: int) -> int:
        self._idle_rounds = 0 if drafted else self._idle_rounds + 1
        return self._length + 1 if self._idle_rounds <= _MAX_IDLE_ROUNDS else 1

    def observe(self, step: Step, from_model: bool) -> None:
        pass


class Auto:
    """As many tokens as pay, by what rounds cost and how often drafts are accepted; none where
    none pay.

    Costs are counted in steps. A draft of K tokens is expected to yield 1 + a1 + a1 a2 + … tokens
    for the price of drafting them and of a forward pass. The K with the most tokens for its price
    is taken, but another padding only if it earns its switch within `_SWITCH_HORIZON` tokens.
    Within a round, drafting stops where the confidence says that the next token is not worth its
    price.

    It goes by measured times: sampled text follows the target's distribution for any choice, but
    another run with the same seed may sample another text.
    """

    def __init__(self, stats: AcceptanceStats) -> None:
        self._stats = stats
        self._pad_to, self._last_pad_to = 1, 0
        # Of this round: tokens at most, their acceptance, and the tokens that one must add to pay.
        self._max_tokens, self._acceptance, self._min_yield = 0, stats.by_position(), 0.0
        self._confidences: list[float] = []
        self._chance, self._expected = 1.0, 0.0  # that all drafted so far are accepted; how many

    def max_tokens(self, budget: int) -> int:
        costs, self._acceptance = self._stats.costs, self._stats.by_position()
        tokens, pad_to = expected_tokens(self._acceptance), self._pad_to
        best, best_rate = best_length(tokens, costs, range(1, len(tokens)), min_rate=_MIN_GAIN)
        # The best within the padding that is now: without a draft, a pass yields one token.
        floor = _MIN_GAIN / costs.of_pass(pad_to)
        length, rate = best_length(tokens, costs, range(1, pad_to), pad_to, floor)
        if _SWITCH_HORIZON / rate - _SWITCH_HORIZON / best_rate > costs.switch:
            length, self._pad_to = best, best + 1
        if not length and not costs.draft:
            length = len(self._acceptance)  # a copy costs nothing: look for one
        self._min_yield = costs.draft * max(rate, best_rate)
        self._confidences, self._chance, self._expected = [], 1.0, 0.0
        self._max_tokens = min(length, budget)
        return self._max_tokens

    def should_continue(self, confidence: float) -> bool:
        self._confidences.append(confidence)
        self._chance *= self._stats.by_confidence(confidence)
        self._expected += self._chance
        drafted = len(self._confidences)
        if drafted >= self._max_tokens:
            return False
        return self._chance * self._acceptance[drafted] > self._min_yield

    def pad_to(self, drafted: int) -> int:
        if self._pad_to == 1 and drafted:  # a copy, where drafting did not pay: there and back
            costs = self._stats.costs
            pays = self._expected > costs.of_pass(drafted + 1) - 1 + 2 * costs.switch
            self._pad_to = drafted + 1 if pays else 1
        return self._pad_to

    def observe(self, step: Step, from_model: bool) -> None:
        stats, drafted = self._stats, len(step.drafted)
        if from_model and drafted and self._pad_to == self._last_pad_to:
            stats.update_draft_cost(step.draft_s / drafted, step.verify_s, self._pad_to)
        self._last_pad_to = self._pad_to
        if self._pad_to == 1:
            stats.decay()
        elif self._max_tokens:
            stats.update(step.accepted, drafted, self._confidences)
