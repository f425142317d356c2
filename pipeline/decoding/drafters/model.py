"""The draft model as a drafter: autoregressive, one token per forward pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.decoding.drafters.drafter import DrafterSpec, Hidden, Parts, ShouldContinue
from pipeline.decoding.events import Step
from pipeline.decoding.lm import CausalLM
from pipeline.decoding.sampling import SamplingParams, probabilities, sample
from pipeline.decoding.verification import Draft


class ModelDrafter:
    """Samples from a small model of the target's vocabulary (Chen et al. 2023, arXiv 2302.01318).

    Args:
        model: the draft model, with a cache of its own.
        vocab_size: the target's. Draft distributions are shaped over the common part and padded
            with zeros: a token that the draft does not know is one that it never proposes.
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

    def propose(
        self,
        tokens: Sequence[int],
        max_tokens: int,
        params: SamplingParams,
        rng: np.random.Generator,
        should_continue: ShouldContinue | None = None,
    ) -> Draft:
        drafted: list[int] = []
        logits: list[NDArray[np.float32]] = []
        # A greedy draft is certain: no distribution to keep.
        probs = np.zeros((max_tokens, self._vocab_size), np.float32) if params.temperature else None
        pending, token_ids = tokens[len(self._model) :], self._model.token_ids
        while len(drafted) < max_tokens:
            common = self._model.forward(pending, logits_to_keep=1).logits[:, : self._vocab_size]
            if probs is None:
                best = int(common.argmax())
                drafted.append(best if token_ids is None else int(token_ids[best]))
                logits.append(common[0])
            else:
                row = probs[len(drafted)]
                known = slice(common.shape[1]) if token_ids is None else token_ids
                row[known] = probabilities(common, params)[0]
                drafted.append(sample(row, rng))
            if drafted[-1] in self._end_ids:
                break
            if should_continue and not should_continue(_confidence(common[0])):
                break
            pending = drafted[-1:]
        kept = None if probs is None else probs[: len(drafted)]
        return Draft(tuple(drafted), kept, tuple(logits), token_ids)

    def observe(self, step: Step, hidden: Hidden | None = None) -> None:
        pass

    def rollback(self, length: int) -> None:
        self._model.rollback(length)


def _confidence(logits: NDArray[np.float32]) -> float:
    """The probability of the likeliest token."""
    return 1 / float(np.exp(logits - logits.max()).sum())


def _build(parts: Parts) -> ModelDrafter:
    return ModelDrafter(parts.draft_model(), parts.vocab_size, parts.end_ids)


MODEL = DrafterSpec(name="model", title="Draft model", build=_build)
