"""Builds the lanes of a request from decoders, drafters and draft lengths.

Depends on the protocols of decoding only; the caller supplies the models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.decoders import Autoregressive, Ends, Speculative
from pipeline.decoding.draft_length import Auto, DraftLength, Fixed
from pipeline.decoding.drafters import DrafterSetup, DrafterSpec, check_drafter, find_drafter
from pipeline.decoding.economics import AcceptanceStats, Costs
from pipeline.decoding.events import AUTOREGRESSIVE, SPECULATIVE, Event
from pipeline.decoding.lm import BlockDraft, CausalLM
from pipeline.decoding.race import Mode, lanes_of
from pipeline.decoding.sampling import SamplingParams
from pipeline.decoding.verification.tokens import Verify, verify

NewSequence = Callable[[Sequence[int]], CausalLM]  # of the prompt that it will read


def _no_costs() -> Costs:
    raise ValueError("the costs of these lanes are not measured")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """Builds lanes: iterators over the events of a decoder.

    Attributes:
        target, draft: return a new sequence of the model, which may already hold a prefix of the
            prompt. None without a draft.
        block_draft: returns a new sequence of the block draft; None without one.
        memory: the earlier texts that a drafter may copy.
        costs: returns the pair's; called only for drafters and draft lengths that need them.
        draft_acceptance, block_acceptance: of these models by position, as measured when they
            were made.
        stats: acceptance statistics by drafter, kept across generations by the caller.
        end_ids: tokens that end the text.
        verify: how drafts are verified.
        candidates: how many of the most likely tokens a step names at each position.
        matcher, logprobs: passed to the decoders.
    """

    target: NewSequence
    draft: NewSequence | None = None
    block_draft: Callable[[], BlockDraft] | None = None
    memory: AnswerMemory = field(default_factory=AnswerMemory)
    costs: Callable[[], Costs] = _no_costs
    draft_acceptance: Sequence[float] = ()
    block_acceptance: Sequence[float] = ()
    stats: dict[str, AcceptanceStats] = field(default_factory=dict)
    end_ids: frozenset[int] = frozenset()
    candidates: int = 0
    verify: Verify = verify
    matcher: Callable[[], Ends] | None = None
    logprobs: int | None = None

    def of(
        self,
        mode: Mode,
        prompt: Sequence[int],
        params: SamplingParams,
        max_new_tokens: int,
        drafter: str,
        draft_length: int | Literal["auto"],
    ) -> dict[str, Iterator[Event]]:
        """The lanes of a mode, by name. Their caches are allocated, and costs that they need are
        asked for; no forward pass runs before they are iterated.
        """
        lanes: dict[str, Iterator[Event]] = {}
        if AUTOREGRESSIVE in lanes_of(mode):
            lanes[AUTOREGRESSIVE] = self.autoregressive(prompt, params, max_new_tokens)
        if SPECULATIVE in lanes_of(mode):
            lanes[SPECULATIVE] = self.speculative(
                prompt, params, max_new_tokens, drafter, draft_length
            )
        return lanes

    def autoregressive(
        self, prompt: Sequence[int], params: SamplingParams, max_new_tokens: int
    ) -> Iterator[Event]:
        decoder = Autoregressive(
            self.target(prompt), self.end_ids, self.candidates, self.matcher, self.logprobs
        )
        return decoder.generate(prompt, params, max_new_tokens)

    def speculative(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        max_new_tokens: int,
        drafter: str,
        draft_length: int | Literal["auto"],
    ) -> Iterator[Event]:
        """
        Args:
            prompt: at least one token.
            params: shape both models' distributions.
            max_new_tokens: the budget, the end token included.
            drafter: the name of one in the registry.
            draft_length: K, or "auto" for the fastest by measured costs.

        Raises:
            UserError: there is no such drafter, or it needs a model that is missing.
        """
        check_drafter(drafter, self.draft is not None, self.block_draft is not None)
        spec, target = find_drafter(drafter), self.target(prompt)
        setup = DrafterSetup(
            vocab_size=target.vocab_size,
            end_ids=self.end_ids,
            draft_model=partial(self.draft, prompt) if self.draft else None,
            block_draft=self.block_draft,
            memory=self.memory,
            costs=self.costs,
        )
        decoder = Speculative(
            target,
            spec.build(setup),
            self._draft_length(spec, draft_length),
            self.end_ids,
            self.candidates,
            self.verify,
            self.matcher,
            self.logprobs,
        )
        return decoder.generate(prompt, params, max_new_tokens)

    def _draft_length(
        self, spec: DrafterSpec, draft_length: int | Literal["auto"]
    ) -> Callable[[], DraftLength]:
        if draft_length != "auto":
            return partial(Fixed, draft_length)
        costs, block = spec.costs(self.costs()), spec.block_draft and self.block_draft
        new = AcceptanceStats(costs, self.block_acceptance if block else self.draft_acceptance)
        stats = self.stats.setdefault(spec.name, new)  # atomic
        stats.use_costs(costs)
        return partial(Auto, stats)
