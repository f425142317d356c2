"""The interface of a drafter, and its registry entry: what it needs and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.economics import Costs
from pipeline.decoding.events import Step
from pipeline.decoding.lm import BlockDraft, Cached, CausalLM, Hidden
from pipeline.decoding.sampling import SamplingParams
from pipeline.decoding.verification.tokens import Draft

ShouldContinue = Callable[[float], bool]  # whether to draft another token, by the confidence in one


class Drafter(Cached, Protocol):
    """Proposes the tokens that the target verifies, in one generation."""

    def prefill(self, tokens: Sequence[int], hidden: Hidden | None = None) -> None:
        """Processes a prompt, or the rest of it, so that the first proposal is as fast as others.

        Args:
            tokens: those of the prompt after the first `len(self)`, except the last.
            hidden: float32[m, layers * width], the target's hidden states after each of the last m
                cached tokens, all of the prompt except the last; None if the drafter needs none.
        """
        ...

    def forecast(self, tokens: Sequence[int], max_tokens: int) -> list[float] | None:
        """For each token that `propose` would return for the same arguments, the probability that
        it is accepted if those before it are; None unless the draft is a copy, which is known
        before anything is drawn.
        """
        ...

    def propose(
        self,
        tokens: Sequence[int],
        max_tokens: int,
        params: SamplingParams,
        rng: np.random.Generator,
        should_continue: ShouldContinue | None = None,
    ) -> Draft:
        """Drafts at most `max_tokens` tokens to follow `tokens`. It stops after an end token, and
        after a token for which `should_continue` is false. That token stays in the draft: dropping
        it because of its confidence would bias the distribution that the draft is tested against.
        `should_continue` is not asked about a copy, whose length `forecast` settles.
        """
        ...

    def observe(self, step: Step, hidden: Hidden | None = None) -> None:
        """Receives the outcome of each round, including rounds without a draft.

        Args:
            step: the round.
            hidden: float32[len(step.tokens), layers * width], the target's hidden states that each
                emitted token was predicted from; None if the drafter needs none.
        """
        ...


@dataclass(frozen=True, slots=True)
class DrafterSetup:
    """What a drafter may be built from. Models and measurements are created on demand.

    Attributes:
        vocab_size: the target's.
        end_ids: tokens that end the text.
        draft_model: returns a new sequence of the pair's draft model; None if it has none.
        block_draft: returns a new sequence of the pair's block draft; None if it has none.
        memory: the earlier texts that may be copied.
        costs: returns the pair's; needed if the drafter's entry says so.
    """

    vocab_size: int
    end_ids: frozenset[int]
    draft_model: Callable[[], CausalLM] | None
    block_draft: Callable[[], BlockDraft] | None
    memory: AnswerMemory
    costs: Callable[[], Costs]


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """An entry of the registry.

    Attributes:
        name: its name in a request and on the command line.
        title: its name on the page.
        build: returns a new drafter for one generation.
        draft_model: whether it may run the pair's draft model.
        block_draft: whether it runs the pair's block draft, if there is one.
        copies: whether it may copy from the text, for which it needs no model.
        copies_answers: whether it copies from the answer memory.
        costs: returns what its rounds cost, from a pair's costs.
        compares: whether it compares measured costs: they have to be known, and the same seed may
            sample another text.
    """

    name: str
    title: str
    build: Callable[[DrafterSetup], Drafter]
    draft_model: bool = True
    block_draft: bool = False
    copies: bool = False
    copies_answers: bool = False
    costs: Callable[[Costs], Costs] = lambda costs: replace(costs, block_draft=0.0)
    compares: bool = False

    def fits(self, draft_model: bool, block_draft: bool) -> bool:
        """Whether it can draft for a pair that has these models, or has them not."""
        drafts = (self.draft_model and draft_model) or (self.block_draft and block_draft)
        return self.copies or drafts
