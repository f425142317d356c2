"""What a drafter is: what it does in a round, what it needs, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.decoding.economics import Costs
from pipeline.decoding.events import Step
from pipeline.decoding.lm import CausalLM
from pipeline.decoding.sampling import SamplingParams
from pipeline.decoding.verification import Draft

Hidden = NDArray[np.float32]
ShouldContinue = Callable[[float], bool]  # whether to draft another token, by the confidence in one


class Drafter(Protocol):
    """Proposes the tokens that the target verifies, in one generation."""

    @property
    def kv_bytes(self) -> int:
        """Bytes that its cache holds."""
        ...

    def __len__(self) -> int:
        """Tokens that it has read."""
        ...

    def prefill(self, tokens: Sequence[int], hidden: Hidden | None = None) -> None:
        """Reads a prompt, or the rest of it, so that the first proposal is as quick as the others.

        Args:
            tokens: those of the prompt after the first `len(self)`, but for the newest one.
            hidden: float32[m, layers * width], the target's hidden states after each of the last m
                tokens that it has read, all but the newest; None if the drafter needs none.
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
        """Drafts at most `max_tokens` to follow `tokens`: none after an end token, and none after
        one that `should_continue` says no to. That one is part of the draft: left out by what was
        seen of it, the draft would not follow the distributions that it is tested with.
        """
        ...

    def observe(self, step: Step, hidden: Hidden | None = None) -> None:
        """Learns what became of a round, whether or not this drafter was asked to draft in it.

        Args:
            step: the round.
            hidden: float32[len(step.tokens), layers * width], the target's hidden states that each
                emitted token was predicted from; None if the drafter needs none.
        """
        ...

    def rollback(self, length: int) -> None:
        """Drops all but the first `length` tokens; raises ValueError if fewer are read."""
        ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What a drafter can be built from. Models and measurements are made when called for.

    Attributes:
        vocab_size: the target's.
        end_ids: tokens that end the text.
        draft_model: makes a sequence of the pair's draft model.
        costs: measures the pair, once.
    """

    vocab_size: int
    end_ids: frozenset[int]
    draft_model: Callable[[], CausalLM]
    costs: Callable[[], Costs]


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """An entry of the registry.

    Attributes:
        name: in a request and on the command line.
        title: on the page.
        build: makes the drafter of one generation.
        draft_model: whether it runs the pair's draft model.
        hidden_layers: the layers of the target whose hidden states it reads, from 0.
        cost: what drafting one token costs, of a pair's costs.
    """

    name: str
    title: str
    build: Callable[[Parts], Drafter]
    draft_model: bool = True
    hidden_layers: tuple[int, ...] = ()
    cost: Callable[[Costs], float] = attrgetter("draft")
