"""The two decoders: generators of events over token ids.

Both feed a model the tokens that are not in its cache, `sequence[len(model):]`, and end each round
by rolling the cache back to at most `len(sequence) - 1` tokens. So the newest token is never
cached, and a draft model that is one token behind after a full acceptance needs no special case.

Times, also of the CPU, are measured around the work and never across a `yield`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from pipeline.decoding.draft_length import DraftLength
from pipeline.decoding.drafters import Drafter
from pipeline.decoding.events import (
    Candidates,
    Drafted,
    Event,
    Finish,
    FinishReason,
    Logprob,
    Origin,
    Prefill,
    Step,
    Verification,
    fields_of,
)
from pipeline.decoding.lm import CausalLM
from pipeline.decoding.meter import Meter
from pipeline.decoding.sampling import (
    Distributions,
    Logits,
    SamplingParams,
    likeliest,
    log_probabilities,
    probabilities,
    sample_token,
)
from pipeline.decoding.verification.tokens import Draft, Verdict, Verify, verify
from pipeline.errors import LogitsError

Ends = Callable[[int], bool]  # whether a token ends the text, given its tokens in their order


class Autoregressive:
    """One forward pass of the target for each token.

    Args:
        target: the model; its cache may already hold a prefix of the prompt.
        end_ids: tokens that end the text; they are emitted and counted.
        candidates: how many of the likeliest tokens a step names at each position; found off the
            clock.
        matcher: returns, for one generation, whether a token ends the text by what it completes.
        logprobs: of how many of the likeliest tokens a step has the log-probability, beside that of
            each emitted token; None of no token. Computed off the clock.
    """

    def __init__(
        self,
        target: CausalLM,
        end_ids: frozenset[int],
        candidates: int = 0,
        matcher: Callable[[], Ends] | None = None,
        logprobs: int | None = None,
    ) -> None:
        self._target, self._end_ids, self._candidates = target, end_ids, candidates
        self._matcher, self._logprobs = matcher, logprobs

    def generate(
        self, prompt: Sequence[int], params: SamplingParams, max_new_tokens: int
    ) -> Iterator[Event]:
        """Continues a prompt of at least one token by at most `max_new_tokens`.

        The caches are empty again when it ends, however it ends.
        """
        target, sequence = self._target, list(prompt)
        rng, ends = np.random.default_rng(params.seed), _ends(self._end_ids, self._matcher)
        meter = Meter()
        try:
            start = perf_counter()
            target.forward(sequence[len(target) : -1], logits_to_keep=0)
            yield Prefill(len(prompt), perf_counter() - start)

            reason = FinishReason.LENGTH
            for index in range(max_new_tokens):
                meter.start()
                start = perf_counter()
                logits = target.forward(sequence[len(target) :], logits_to_keep=1).logits
                verified = perf_counter()
                token = sample_token(logits, params, rng)
                sequence.append(token)
                end = perf_counter()
                meter.stop()
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
                    draft_passes=0,
                    **meter.take(),
                    logprobs=_logprobs(logits, (token,), self._logprobs),
                )
                if ends(token):
                    reason = FinishReason.STOP
                    break
            yield Finish(reason)
        finally:
            target.rollback(0)


class Speculative:
    """A drafter proposes, one forward pass of the target verifies.

    Speculative sampling as in Chen et al. 2023 (arXiv 2302.01318, algorithm 2).

    Args:
        target: the model that is decoded; its cache may already hold a prefix of the prompt.
        drafter: proposes tokens; its cache likewise.
        draft_length: returns a new policy that sets the draft length in one generation.
        end_ids: tokens that end the text; they are emitted and counted.
        candidates: how many of the likeliest tokens a step names at each position; found off the
            clock.
        verify: how drafts are verified.
        matcher, logprobs: as of `Autoregressive`.
    """

    def __init__(
        self,
        target: CausalLM,
        drafter: Drafter,
        draft_length: Callable[[], DraftLength],
        end_ids: frozenset[int],
        candidates: int = 0,
        verify: Verify = verify,
        matcher: Callable[[], Ends] | None = None,
        logprobs: int | None = None,
    ) -> None:
        self._target, self._drafter, self._verify = target, drafter, verify
        self._draft_length, self._end_ids = draft_length, end_ids
        self._candidates, self._matcher, self._logprobs = candidates, matcher, logprobs

    def generate(
        self, prompt: Sequence[int], params: SamplingParams, max_new_tokens: int
    ) -> Iterator[Event]:
        """Like `Autoregressive.generate`: the same tokens if greedy, else the same distribution,
        unless `verify` is lossy.
        """
        target, drafter, sequence = self._target, self._drafter, list(prompt)
        rng, draft_length = np.random.default_rng(params.seed), self._draft_length()
        ends, meter = _ends(self._end_ids, self._matcher), Meter()
        try:
            start = perf_counter()
            hidden = target.forward(sequence[len(target) : -1], logits_to_keep=0).hidden
            drafter.prefill(sequence[len(drafter) : -1], hidden)
            yield Prefill(len(prompt), perf_counter() - start)

            index, left, observe_s, reason = 0, max_new_tokens, 0.0, FinishReason.LENGTH
            while left and reason is not FinishReason.STOP:
                # Draft. A round emits one token more than it drafts, and must not pass the budget.
                meter.start()
                start = perf_counter()
                forecast = partial(drafter.forecast, sequence)
                draft, max_tokens = Draft(), draft_length.max_tokens(left - 1, forecast)
                if max_tokens:
                    should_continue = draft_length.should_continue
                    draft = drafter.propose(sequence, max_tokens, params, rng, should_continue)
                pad_to = draft_length.pad_to(len(draft))
                _check_known(draft, target.vocab_size)
                draft_s = observe_s + perf_counter() - start
                meter.stop()
                if draft.tokens:
                    yield Drafted(index, draft.tokens, copied=not draft.from_model)

                # Verify, in one forward pass: logits after the newest token and each drafted one.
                meter.start()
                start = perf_counter()
                unread = [*sequence[len(target) :], *draft.tokens]
                logits, hidden = target.forward(unread, len(draft) + 1, pad_to)
                verified = perf_counter()

                # Accept tokens; then resample the first that is rejected, or take a bonus token.
                verdict = _verdict(self._verify, logits, draft, params, rng)
                tokens, origins, ended = _emitted(draft, verdict, ends)
                if ended:
                    reason = FinishReason.STOP
                sequence += tokens
                left -= len(tokens)

                # Roll both caches back to the emitted tokens.
                dropped = [_roll_back(cached, len(sequence) - 1) for cached in (target, drafter)]
                end = perf_counter()
                meter.stop()

                step = Step(
                    index=index,
                    tokens=tokens,
                    origins=origins,
                    draft_s=draft_s,
                    verify_s=verified - start,
                    other_s=end - verified,
                    drafted=draft.tokens,
                    draft_passes=draft.passes,
                    **meter.take(),
                    **fields_of(Verification, verdict),
                    target_top=_likeliest(logits[: len(tokens)], params, self._candidates),
                    draft_top=_draft_likeliest(draft, self._candidates),
                    logprobs=_logprobs(logits[: len(tokens)], tokens, self._logprobs),
                    **_caches(target, drafter, *dropped),
                )
                meter.start()
                start = perf_counter()
                drafter.observe(step, None if hidden is None else hidden[: len(tokens)])
                observe_s = perf_counter() - start  # part of the next draft
                meter.stop()
                draft_length.observe(step, draft.from_model)
                yield step
                index += 1
            yield Finish(reason)
        finally:
            target.rollback(0)
            drafter.rollback(0)


def _check_known(draft: Draft, vocab_size: int) -> None:
    """Checks that the target has logits for every drafted token."""
    if draft.tokens and (largest := max(draft.tokens)) >= vocab_size:
        remedy = f"the target has {vocab_size:,} tokens; choose a draft with the target's tokenizer"
        raise LogitsError("drafted token", largest, remedy)


def _verdict(
    verify: Verify,
    logits: Logits,
    draft: Draft,
    params: SamplingParams,
    rng: np.random.Generator,
) -> Verdict:
    """Verifies a draft with the logits before its first token and after each of its tokens."""
    if not draft.tokens:  # greedy needs no distribution here
        return Verdict(token=sample_token(logits, params, rng), origin=Origin.TARGET)
    return verify(Distributions(logits, params), draft.probs, draft.tokens, rng)


def _ends(end_ids: frozenset[int], matcher: Callable[[], Ends] | None) -> Ends:
    """Whether a token ends the text of one generation."""
    if matcher is None:
        return end_ids.__contains__
    completes = matcher()
    return lambda token: completes(token) or token in end_ids


def _emitted(
    draft: Draft, verdict: Verdict, ends: Ends
) -> tuple[tuple[int, ...], tuple[Origin, ...], bool]:
    """The tokens that a round emits, up to and including the first that ends the text, and whether
    there is one.
    """
    tokens = (*draft.tokens[: verdict.accepted], verdict.token)
    accepted = Origin.REMEMBERED if draft.remembered else Origin.ACCEPTED
    origins = (*[accepted] * verdict.accepted, verdict.origin)
    for count, token in enumerate(tokens, start=1):
        if ends(token):
            return tokens[:count], origins[:count], True
    return tokens, origins, False


def _roll_back(cached: CausalLM | Drafter, length: int) -> int:
    """Keeps at most the first `length` tokens; returns how many were dropped."""
    dropped = max(0, len(cached) - length)
    cached.rollback(len(cached) - dropped)
    return dropped


def _caches(
    target: CausalLM, drafter: Drafter, target_rolled_back: int, draft_rolled_back: int
) -> dict[str, Any]:
    """The fields of a step that describe both caches."""
    return {
        "target_kv_len": len(target),
        "draft_kv_len": len(drafter),
        "target_kv_bytes": target.kv_bytes,
        "draft_kv_bytes": drafter.kv_bytes,
        "target_rolled_back": target_rolled_back,
        "draft_rolled_back": draft_rolled_back,
    }


_UNCHANGED = SamplingParams(temperature=1)  # a model's own distribution


def _likeliest(logits: Logits, params: SamplingParams, count: int) -> tuple[Candidates, ...]:
    if not count:
        return ()
    return likeliest(probabilities(logits, params if params.temperature else _UNCHANGED), count)


def _logprobs(logits: Logits, tokens: Sequence[int], top: int | None) -> tuple[Logprob, ...]:
    return () if top is None else log_probabilities(logits, tokens, top)


def _draft_likeliest(draft: Draft, count: int) -> tuple[Candidates, ...]:
    """Empty for a copied draft: no model computed it."""
    if count and draft.probs is not None:
        return likeliest(draft.probs, count)
    if not draft.logits:
        return ()
    found = _likeliest(np.stack(draft.logits), _UNCHANGED, count)
    if draft.token_ids is None:
        return found
    return tuple(tuple((int(draft.token_ids[i]), p) for i, p in row) for row in found)
