"""The draft model as a drafter: autoregressive, one token per forward pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline.decoding.drafters.drafter import DrafterSetup, DrafterSpec, ShouldContinue
from pipeline.decoding.drafters.proposal import Proposal
from pipeline.decoding.events import Step
from pipeline.decoding.lm import CausalLM, Hidden
from pipeline.decoding.sampling import SamplingParams
from pipeline.decoding.verification.tokens import Draft


class ModelDrafter:
    """Samples from a small model of the target's vocabulary (Chen et al. 2023, arXiv 2302.01318).

    Args:
        model: the draft model, with a cache of its own.
        vocab_size: the target's; see `Proposal`.
        end_ids: tokens after which there is nothing to draft.
    """

    def __init__(self, model: CausalLM, vocab_size: int, end_ids: frozenset[int]) -> None:
        self._model, self._vocab_size, self._end_ids = model, vocab_size, end_ids

    @property
    def kv_bytes(self) -> int:
        return self._model.kv_bytes

    def __len__(self) -> int:
        return len(self._model)

    def prefill(self, tokens: Sequence[int], hidden: Hidden | None = None) -> None:
        self._model.forward(tokens, logits_to_keep=0)

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
        proposal = Proposal(self._vocab_size, self._model.token_ids, params)
        pending = tokens[len(self._model) :]
        while len(proposal.tokens) < max_tokens:
            proposal.draw(self._model.forward(pending, logits_to_keep=1).logits[0], rng)
            if proposal.ends(self._end_ids, should_continue):
                break
            pending = proposal.tokens[-1:]
        return proposal.draft()

    def observe(self, step: Step, hidden: Hidden | None = None) -> None:
        pass

    def rollback(self, length: int) -> None:
        self._model.rollback(length)


def _build(setup: DrafterSetup) -> ModelDrafter:
    assert setup.draft_model
    return ModelDrafter(setup.draft_model(), setup.vocab_size, setup.end_ids)


MODEL = DrafterSpec(name="model", title="Draft model", build=_build)
