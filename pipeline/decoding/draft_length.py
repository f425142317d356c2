"""The draft length of each round: a fixed number, or the fastest by measured costs.

Works on counts, seconds and confidences; not on tokens or models. It uses plain floats, since it
runs in every round.

It also sets the padding of the verifying forward pass. A pass of another number of tokens than the
one before costs extra (`Costs.switch`), and a few tokens of padding cost little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from pipeline.decoding.drafters.drafter import ShouldContinue
from pipeline.decoding.economics import AcceptanceStats, best_length, expected_tokens
from pipeline.decoding.events import Step

_MAX_IDLE_ROUNDS = 4  # without a draft, before passes are no longer padded for one
_MIN_GAIN = 1.03  # expected speedup below which nothing is drafted, since estimates are uncertain
_SWITCH_HORIZON = 40  # tokens within which another padding must recover the cost of the switch


Forecast = Callable[[int], list[float] | None]  # a drafter's forecast of so many tokens at most


class DraftLength(Protocol):
    """Sets the draft length in each round of one generation.

    The length of a draft depends only on `max_tokens` and `should_continue`, which are called
    before each token is sampled. To drop tokens depending on their values, or on those of later
    tokens, would bias a sampled text: the others would no longer follow the draft's distribution.
    """

    def max_tokens(self, budget: int, forecast: Forecast) -> int:
        """Tokens to draft in the next round; 0 if drafting would not be faster.

        Args:
            budget: tokens at most.
            forecast: the drafter's forecast for this round (`Drafter.forecast`).
        """
        ...

    @property
    def should_continue(self) -> ShouldContinue | None:
        """Whether to draft another token after one, by the confidence in it; None: always."""
        ...

    def pad_to(self, drafted: int) -> int:
        """Tokens to pad the verifying forward pass to: more than were drafted, since the one before
        the draft is among them.
        """
        ...

    def observe(self, step: Step, from_model: bool) -> None:
        """Updates the estimates with the outcome and the cost of a round.

        Args:
            step: the round.
            from_model: whether a model computed the draft; copying has no cost to measure.
        """
        ...


class Fixed:
    """The same draft length in each round, as in Chen et al. 2023."""

    should_continue = None

    def __init__(self, length: int) -> None:
        self._length = length
        self._idle_rounds = 0  # consecutive rounds without a draft, as when lookups find nothing

    def max_tokens(self, budget: int, forecast: Forecast) -> int:
        return min(self._length, budget)

    def pad_to(self, drafted: int) -> int:
        self._idle_rounds = 0 if drafted else self._idle_rounds + 1
        return self._length + 1 if self._idle_rounds <= _MAX_IDLE_ROUNDS else 1

    def observe(self, step: Step, from_model: bool) -> None:
        pass


class Auto:
    """The draft length with the highest expected speed, by measured costs and acceptance rates; 0
    where drafting is not expected to be faster.

    Costs are counted in steps. A draft of K tokens is expected to emit 1 + a1 + a1 a2 + … tokens
    for the cost of drafting them and of one forward pass. The K with the most tokens per cost is
    selected, but with another padding only if it recovers the cost of the switch within
    `_SWITCH_HORIZON` tokens. Within a round, drafting stops when the confidence predicts that the
    next token would cost more than it gains. A copy costs nothing to draft: its length follows from
    the drafter's forecast, and rounds of copies pay for another padding there and back.

    The lengths depend on measured times: sampled text follows the target's distribution for any of
    them, but another run with the same seed may sample another text.
    """

    def __init__(self, stats: AcceptanceStats) -> None:
        self._stats = stats
        self._drafting_pad_to = 1  # of rounds in which a model may draft
        self._pad_to, self._last_pad_to = 1, 0  # of this round and of the last one
        self._idle_rounds = 0  # consecutive rounds with nothing to copy
        self._copies = False  # whether this round's draft is a copy, if it has one
        self._copied_rounds = 0  # consecutive rounds with something to copy
        # Of this round: the limit of tokens, their acceptance, and the least expected gain of one.
        self._max_tokens, self._acceptance, self._min_yield = 0, stats.by_position(), 0.0
        self._confidences: list[float] = []
        self._chance = 1.0  # that all drafts so far are accepted

    def max_tokens(self, budget: int, forecast: Forecast) -> int:
        acceptance = forecast(min(budget, self._stats.longest))
        self._copies, self._confidences, self._chance = acceptance is not None, [], 1.0
        self._copied_rounds = self._copied_rounds + 1 if acceptance else 0
        length = self._to_draft() if acceptance is None else self._to_copy(acceptance)
        self._max_tokens = min(length, budget)
        return self._max_tokens

    def _to_draft(self) -> int:
        """Tokens that a model should draft. What it sets is kept for later rounds."""
        costs, self._acceptance = self._stats.costs, self._stats.by_position()
        tokens, pad_to = expected_tokens(self._acceptance), self._drafting_pad_to
        best, best_rate = best_length(tokens, costs, range(1, len(tokens)), min_rate=_MIN_GAIN)
        # The best length within the current padding: without a draft, a pass emits one token.
        floor = _MIN_GAIN / costs.of_pass(pad_to)
        length, rate = best_length(tokens, costs, range(1, pad_to), pad_to, floor)
        if _SWITCH_HORIZON / rate - _SWITCH_HORIZON / best_rate > costs.switch:
            length, self._drafting_pad_to = best, best + 1
        self._min_yield = costs.draft * max(rate, best_rate)
        self._pad_to = self._drafting_pad_to
        return length

    def _to_copy(self, acceptance: Sequence[float]) -> int:
        """Tokens to copy, which costs nothing. Copies come in runs: one that has lasted for some
        rounds is expected to last for as many more, which share the cost of another padding.
        """
        free, tokens = (
            replace(self._stats.costs, draft=0.0, block_draft=0.0),
            expected_tokens(acceptance),
        )
        self._idle_rounds = 0 if acceptance else self._idle_rounds + 1
        idle = self._idle_rounds > _MAX_IDLE_ROUNDS
        self._pad_to = pad_to = 1 if idle else max(1, self._last_pad_to)
        floor = 1 / free.of_pass(pad_to)
        length, rate = best_length(tokens, free, range(1, min(pad_to, len(tokens))), pad_to, floor)
        shared = 2 * free.switch / max(1, self._copied_rounds)  # to another padding, and back
        switching = replace(free, block_draft=shared)
        best, best_rate = best_length(tokens, switching, range(1, len(tokens)), min_rate=rate)
        if best_rate > rate:
            length, self._pad_to = best, best + 1
        return length

    def should_continue(self, confidence: float) -> bool:
        self._confidences.append(confidence)
        self._chance *= self._stats.by_confidence(confidence)
        drafted = len(self._confidences)
        if drafted >= self._max_tokens:
            return False
        return self._chance * self._acceptance[drafted] > self._min_yield

    def pad_to(self, drafted: int) -> int:
        return self._pad_to

    def observe(self, step: Step, from_model: bool) -> None:
        stats, drafted = self._stats, len(step.drafted)
        if from_model and drafted and self._pad_to == self._last_pad_to:
            stats.update_draft_cost(drafted, step.draft_s, step.verify_s, self._pad_to)
        self._last_pad_to = self._pad_to
        if self._copies:
            return  # the drafter counts how often its copies are accepted
        if self._max_tokens:
            stats.update(step.accepted, drafted, self._confidences)
        else:
            stats.decay()
