"""The two decoders: generators of events over token ids.

Both feed a model whatever it has not seen, `sequence[len(model):]`, and end each round by rolling
its cache back to `len(sequence) - 1` at most. So the newest token is always still to be fed, and
a draft that is one token behind after a full acceptance is no special case.

Times are measured around the work and never across a `yield`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

import numpy as np

from pipeline.decoding.draft_length import DraftLength
from pipeline.decoding.drafters import Drafter
from pipeline.decoding.events import (
    Candidates,
    Drafted,
    Event,
    Finish,
    FinishReason,
    Origin,
    Prefill,
    Step,
    Verification,
    fields_of,
)
from pipeline.decoding.lm import CausalLM
from pipeline.decoding.sampling import (
    Logits,
    SamplingParams,
    likeliest,
    probabilities,
    sample_token,
)
from pipeline.decoding.verification import Draft, Verdict, verify


class Autoregressive:
    """One target run per token.

    Args:
        target: the model; its cache may hold what the prompt begins with.
        end_ids: tokens that end the text; they are emitted and counted.
        candidates: the likeliest tokens that a step tells at each place; found off the clock.
    """

    def __init__(self, target: CausalLM, end_ids: frozenset[int], candidates: int = 0) -> None:
        self._target, self._end_ids, self._candidates = target, end_ids, candidates

    def generate(
        self, prompt: Sequence[int], params: SamplingParams, max_new_tokens: int
    ) -> Iterator[Event]:
        """Continues a prompt of at least one token by at most `max_new_tokens`.

        The caches are empty again when it ends, however it ends.
        """
        target, sequence = self._target, list(prompt)
        rng = np.random.default_rng(params.seed)
        try:
            start = perf_counter()
            target.forward(sequence[len(target) : -1], logits_to_keep=0)
            yield Prefill(len(prompt), perf_counter() - start)

            reason = FinishReason.LENGTH
            for index in range(max_new_tokens):
                start = perf_counter()
                logits = target.forward(sequence[len(target) :], logits_to_keep=1).logits
                verified = perf_counter()
                token = sample_token(logits, params, rng)
                sequence.append(token)
                end = perf_counter()
                yield Step(
                    index=index,
                    tokens=(token,),
                    origins=(Origin.TARGET,),
                    draft_s=0.0,
                    verify_s=verified - start,
                    other_s=end - verified,
                    target_top=_likeliest(logits, params, self._candidates),
                    target_kv_len=len(target),
                    target_kv_bytes=target.kv_bytes,
                    target_rolled_back=0,
                    draft_rolled_back=0,
                )
                if token in self._end_ids:
                    reason = FinishReason.STOP
                    break
            yield Finish(reason)
        finally:
            target.rollback(0)


class Speculative:
    """A draft proposes, one target run verifies (Chen et al. 2023, arXiv 2302.01318).

    Args:
        target: the model whose text this is; its cache may hold what the prompt begins with.
        drafter: who proposes; its cache likewise.
        draft_length: makes one generation's choice of K, the tokens drafted in a round.
        end_ids: tokens that end the text; they are emitted and counted.
        candidates: the likeliest tokens that a step tells at each place; found off the clock.
    """

    def __init__(
        self,
        target: CausalLM,
        drafter: Drafter,
        draft_length: Callable[[], DraftLength],
        end_ids: frozenset[int],
        candidates: int = 0,
    ) -> None:
        self._target, self._drafter = target, drafter
        self._draft_length, self._end_ids = draft_length, end_ids
        self._candidates = candidates

    def generate(
        self, prompt: Sequence[int], params: SamplingParams, max_new_tokens: int
    ) -> Iterator[Event]:
        """As `Autoregressive.generate`: greedy, the same tokens; else, the same distribution."""
        target, drafter, sequence = self._target, self._drafter, list(prompt)
        rng, draft_length = np.random.default_rng(params.seed), self._draft_length()
        try:
            start = perf_counter()
            target.forward(sequence[len(target) : -1], logits_to_keep=0)
            drafter.prefill(sequence[len(drafter) : -1])
            yield Prefill(len(prompt), perf_counter() - start)

            index, left, reason = 0, max_new_tokens, FinishReason.LENGTH
            while left and reason is not FinishReason.STOP:
                # Draft. A round emits one token more than it drafts, and must not pass the budget.
                start = perf_counter()
                most, draft = draft_length.most(left - 1), Draft()
                if most:
                    draft = drafter.propose(sequence, most, params, rng, draft_length.go_on)
                width = draft_length.width(len(draft))
                draft = draft.first(width - 1)
                draft_s = perf_counter() - start
                if draft.tokens:
                    yield Drafted(index, draft.tokens)

                # Verify: one target run, a row of logits after each drafted token and before.
                start = perf_counter()
                unseen = [*sequence[len(target) :], *draft.tokens]
                logits = target.forward(unseen, len(draft) + 1, width).logits
                verified = perf_counter()

                # Accept, then resample or take the bonus token.
                if draft.tokens:
                    target_probs = probabilities(logits, params)
                    verdict = verify(target_probs, draft.probs, draft.tokens, rng)
                else:
                    verdict = Verdict(token=sample_token(logits, params, rng), origin=Origin.TARGET)
                tokens = (*draft.tokens[: verdict.accepted], verdict.token)
                origins = (*[Origin.ACCEPTED] * verdict.accepted, verdict.origin)
                for place, token in enumerate(tokens, start=1):
                    if token in self._end_ids:
                        tokens, origins, reason = tokens[:place], origins[:place], FinishReason.STOP
                        break

                # Roll both caches back to what stands.
                sequence += tokens
                left -= len(tokens)
                target_rolled_back = _roll_back(target, len(sequence) - 1)
                draft_rolled_back = _roll_back(drafter, len(sequence) - 1)
                end = perf_counter()
                step = Step(
                    index=index,
                    tokens=tokens,
                    origins=origins,
                    draft_s=draft_s,
                    verify_s=verified - start,
                    other_s=end - verified,
                    drafted=draft.tokens,
                    **fields_of(Verification, verdict),
                    target_top=_likeliest(logits[: len(tokens)], params, self._candidates),
                    draft_top=_draft_likeliest(draft, self._candidates),
                    target_kv_len=len(target),
                    draft_kv_len=len(drafter),
                    target_kv_bytes=target.kv_bytes,
                    draft_kv_bytes=drafter.kv_bytes,
                    target_rolled_back=target_rolled_back,
                    draft_rolled_back=draft_rolled_back,
                )
                draft_length.learn(step, draft.by_model)
                yield step
                index += 1
            yield Finish(reason)
        finally:
            target.rollback(0)
            drafter.rollback(0)


def _roll_back(cached: CausalLM | Drafter, length: int) -> int:
    """Keeps at most the first `length` tokens; returns how many were dropped."""
    dropped = max(0, len(cached) - length)
    cached.rollback(len(cached) - dropped)
    return dropped


_OWN = SamplingParams(temperature=1)  # a model's own distribution


def _likeliest(logits: Logits, params: SamplingParams, count: int) -> tuple[Candidates, ...]:
    if not count:
        return ()
    return likeliest(probabilities(logits, params if params.temperature else _OWN), count)


def _draft_likeliest(draft: Draft, count: int) -> tuple[Candidates, ...]:
    """A copied draft has none: no model stands behind it."""
    if count and draft.probs is not None:
        return likeliest(draft.probs, count)
    return _likeliest(np.stack(draft.logits), _OWN, count) if draft.logits else ()
