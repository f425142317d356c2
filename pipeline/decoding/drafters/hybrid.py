"""Combines prompt lookup with a draft model: each round uses the one expected to be faster."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import numpy as np

from pipeline.decoding.drafters.block import BLOCK
from pipeline.decoding.drafters.drafter import Drafter, DrafterSpec, Parts, ShouldContinue
from pipeline.decoding.drafters.lookup import PromptLookupDrafter
from pipeline.decoding.drafters.model import MODEL
from pipeline.decoding.economics import AcceptanceRate, Costs, expected_tokens
from pipeline.decoding.events import Step
from pipeline.decoding.lm import Hidden
from pipeline.decoding.sampling import SamplingParams
from pipeline.decoding.verification import Draft

_PRIOR_ACCEPTANCE, _PRIOR_WEIGHT = 0.75, 2.0  # assumed of both before any test; weight in tests


class HybridDrafter:
    """Searches the text in each round. It copies the match if that is expected to emit more tokens
    per cost; otherwise the model drafts.

    Copying is free. The acceptance rates of both are counted during the generation.

    Args:
        lookup: drafts by copying.
        model: drafts where no match is found, or only a short one.
        costs: of the model's rounds.
    """

    def __init__(self, lookup: PromptLookupDrafter, model: Drafter, costs: Costs) -> None:
        self._lookup, self._model, self._costs = lookup, model, costs
        self._rates: dict[Drafter, AcceptanceRate] = {
            lookup: AcceptanceRate(),
            model: AcceptanceRate(),
        }
        self._last: Drafter = model  # of the current draft

    @property
    def kv_bytes(self) -> int:
        return self._model.kv_bytes

    def __len__(self) -> int:
        return max(len(self._lookup), len(self._model))

    def prefill(self, tokens: Sequence[int], hidden: Hidden | None = None) -> None:
        self._model.prefill(tokens, hidden)  # the lookup reads the whole text in the first round

    def propose(
        self,
        tokens: Sequence[int],
        max_tokens: int,
        params: SamplingParams,
        rng: np.random.Generator,
        should_continue: ShouldContinue | None = None,
    ) -> Draft:
        match = self._lookup.look_up(tokens, max_tokens)
        if match.tokens and self._copy_pays(len(match.tokens), max_tokens):
            self._last = self._lookup
            return self._lookup.draft(match, should_continue)
        self._last = self._model
        return self._model.propose(tokens, max_tokens, params, rng, should_continue)

    def observe(self, step: Step, hidden: Hidden | None = None) -> None:
        self._rates[self._last].add(step.accepted, step.tested)
        self._model.observe(step, hidden)

    def rollback(self, length: int) -> None:
        for drafter in (self._lookup, self._model):
            drafter.rollback(min(len(drafter), length))

    def _copy_pays(self, copied: int, drafted: int) -> bool:
        """Whether copying that many tokens is expected to be as fast as drafting that many."""
        copying = self._expected(self._lookup, copied) / self._costs.of_pass(copied + 1)
        return copying >= self._expected(self._model, drafted) / self._costs.of_round(drafted)

    def _expected(self, drafter: Drafter, count: int) -> float:
        acceptance = self._rates[drafter].estimate(_PRIOR_ACCEPTANCE, _PRIOR_WEIGHT)
        return expected_tokens(repeat(acceptance, count))[-1]


def _build(parts: Parts) -> HybridDrafter:
    drafting = BLOCK if parts.block_draft else MODEL
    lookup, costs = PromptLookupDrafter(parts.end_ids), drafting.costs(parts.costs())
    return HybridDrafter(lookup, drafting.build(parts), costs)


def _costs(costs: Costs) -> Costs:
    return (BLOCK if costs.block else MODEL).costs(costs)


HYBRID = DrafterSpec(
    name="hybrid",
    title="Hybrid: lookup or the draft",
    build=_build,
    block_draft=True,
    costs=_costs,
)
