"""Combines prompt lookup with a draft model: each round uses the one expected to be faster.

Where a target has no draft, MEMORY only copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.drafters.block import BLOCK
from pipeline.decoding.drafters.drafter import Drafter, DrafterSetup, DrafterSpec, ShouldContinue
from pipeline.decoding.drafters.lookup import (
    LOOKUP,
    PRIOR_ACCEPTANCE,
    PRIOR_WEIGHT,
    LookupDrafter,
    Match,
)
from pipeline.decoding.drafters.model import MODEL
from pipeline.decoding.economics import AcceptanceRate, Costs, best_length, expected_tokens
from pipeline.decoding.events import Step
from pipeline.decoding.lm import Hidden
from pipeline.decoding.sampling import SamplingParams
from pipeline.decoding.verification.tokens import Draft


class HybridDrafter:
    """Searches the text in each round. It copies the match if that is expected to emit more tokens
    per cost; otherwise the model drafts.

    Copying is free. The acceptance rates of both are counted during the generation.

    Args:
        lookup: drafts by copying.
        model: drafts where no match is found, or only a short one.
        costs: what the model's rounds cost.
    """

    def __init__(self, lookup: LookupDrafter, model: Drafter, costs: Costs) -> None:
        self._lookup, self._model, self._costs = lookup, model, costs
        self._copying = LOOKUP.costs(costs)
        self._rate = AcceptanceRate()  # the model's
        self._copies: bool | None = None  # whether this round does; None before that is decided

    @property
    def kv_bytes(self) -> int:
        return self._model.kv_bytes

    def __len__(self) -> int:
        return len(self._model)

    def prefill(self, tokens: Sequence[int], hidden: Hidden | None = None) -> None:
        self._copies = None
        self._model.prefill(tokens, hidden)  # the lookup reads the whole text in the first round

    def forecast(self, tokens: Sequence[int], max_tokens: int) -> list[float] | None:
        match = self._look_up(tokens, max_tokens)
        return self._lookup.acceptance(match) if self._copies else None

    def propose(
        self,
        tokens: Sequence[int],
        max_tokens: int,
        params: SamplingParams,
        rng: np.random.Generator,
        should_continue: ShouldContinue | None = None,
    ) -> Draft:
        if self._copies is None:
            self._look_up(tokens, max_tokens)
        drafter = self._lookup if self._copies else self._model
        return drafter.propose(tokens, max_tokens, params, rng, should_continue)

    def observe(self, step: Step, hidden: Hidden | None = None) -> None:
        if self._copies:
            self._lookup.observe(step)
        else:
            self._rate.add(step.accepted, step.tested)
        self._copies = None
        self._model.observe(step, hidden)

    def rollback(self, length: int) -> None:
        self._model.rollback(length)
        if not length:  # else the lookup, which reads emitted tokens only, has none to drop
            self._lookup.rollback(0)

    def _look_up(self, tokens: Sequence[int], max_tokens: int) -> Match:
        """Looks the text up, and decides whether to copy what was found."""
        match = self._lookup.look_up(tokens, max_tokens)
        self._copies = bool(match.tokens) and self._copy_pays(match, max_tokens)
        return match

    def _copy_pays(self, match: Match, drafted: int) -> bool:
        """Whether copying it is expected to be as fast as drafting up to so many tokens."""
        rate = self._rate.estimate(PRIOR_ACCEPTANCE, PRIOR_WEIGHT)
        copying = _tokens_per_cost(self._lookup.acceptance(match), self._copying)
        return copying >= _tokens_per_cost([rate] * drafted, self._costs)


def _tokens_per_cost(acceptance: list[float], costs: Costs) -> float:
    """With the best of the lengths from one to all of these tokens."""
    return best_length(expected_tokens(acceptance), costs, range(1, len(acceptance) + 1))[1]


def _build(setup: DrafterSetup, memory: AnswerMemory | None = None) -> Drafter:
    lookup = LookupDrafter(setup.end_ids, memory)
    if not (setup.draft_model or setup.block_draft):
        return lookup
    drafting = BLOCK if setup.block_draft else MODEL
    return HybridDrafter(lookup, drafting.build(setup), drafting.costs(setup.costs()))


HYBRID = DrafterSpec(
    name="hybrid",
    title="Hybrid: lookup or the draft",
    build=_build,
    block_draft=True,
    costs=lambda costs: (BLOCK if costs.block_draft else MODEL).costs(costs),  # without a copy
    compares=True,
)
MEMORY = replace(
    HYBRID,
    name="memory",
    title="Memory: hybrid, and earlier answers",
    build=lambda setup: _build(setup, setup.memory),
    copies=True,
    copies_answers=True,
)
