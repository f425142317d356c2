"""The block draft as a drafter: all tokens of a draft from one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pipeline.decoding.drafters.drafter import DrafterSetup, DrafterSpec, ShouldContinue
from pipeline.decoding.drafters.proposal import Proposal
from pipeline.decoding.events import Step
from pipeline.decoding.lm import BlockDraft, Hidden
from pipeline.decoding.sampling import SamplingParams
from pipeline.decoding.verification.tokens import Draft


class BlockDrafter:
    """Drafts with a model that reads the target's hidden states (as EAGLE, arXiv 2401.15077) and
    predicts a whole block in one forward pass (as PARD, arXiv 2504.18583, and DFlash).

    The model has a row for every token but the first, which was predicted from nothing.

    Args:
        model: the block draft, with a cache of its own.
        vocab_size: the target's; see `Proposal`.
        end_ids: tokens after which there is nothing to draft.
    """

    def __init__(self, model: BlockDraft, vocab_size: int, end_ids: frozenset[int]) -> None:
        self._model, self._vocab_size, self._end_ids = model, vocab_size, end_ids
        self._first = 0  # tokens without a row, before all others
        self._hidden: list[Hidden] = []  # that tokens without a row yet were predicted from

    @property
    def kv_bytes(self) -> int:
        return self._model.kv_bytes

    def __len__(self) -> int:
        return self._first + len(self._model)

    def prefill(self, tokens: Sequence[int], hidden: Hidden | None = None) -> None:
        if hidden is None or not tokens:
            return
        self._first = 1
        if len(tokens) > 1:
            self._model.forward(tokens[1:], hidden[: len(tokens) - 1], 0)
        self._hidden = [hidden[len(tokens) - 1 :]]

    def forecast(self, tokens: Sequence[int], max_tokens: int) -> None:
        return None

    def propose(
        self,
        tokens: Sequence[int],
        max_tokens: int,
        params: SamplingParams,
        rng: np.random.Generator,
        should_continue: ShouldContinue | None = None,
    ) -> Draft:
        pending, hidden = tokens[len(self) :], self._hidden
        length = min(max_tokens, self._model.length)
        if not hidden or not length:  # a prompt of one token: nothing that it was predicted from
            return Draft()
        rows = self._model.forward(pending, np.concatenate(hidden), length)
        self._hidden = []
        proposal = Proposal(self._vocab_size, self._model.token_ids, params)
        for index, logits in enumerate(rows):
            if index:
                logits = self._model.after(logits, proposal.tokens[-1])
            proposal.draw(logits, rng)
            if proposal.ends(self._end_ids, should_continue):
                break
        return proposal.draft()

    def observe(self, step: Step, hidden: Hidden | None = None) -> None:
        if hidden is not None and self._first:
            self._hidden.append(hidden)

    def rollback(self, length: int) -> None:
        if length > len(self):
            raise ValueError(f"cannot roll {len(self)} tokens back to {length}")
        self._model.rollback(max(0, length - self._first))
        if not length:
            self._first, self._hidden = 0, []


def _build(setup: DrafterSetup) -> BlockDrafter:
    assert setup.block_draft
    return BlockDrafter(setup.block_draft(), setup.vocab_size, setup.end_ids)


BLOCK = DrafterSpec(
    name="block",
    title="Block draft: all tokens in one pass",
    build=_build,
    draft_model=False,
    block_draft=True,
    costs=lambda costs: replace(costs, draft=0.0),
)
