"""A user's request, validated when it is constructed."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from pipeline.decoding.drafters import DEFAULT_DRAFTER, find_drafter
from pipeline.decoding.sampling import SamplingParams
from pipeline.decoding.verification import DEFAULT_VERIFIER, find_verifier
from pipeline.errors import UserError
from pipeline.runtime.kv_cache.precision import KVPrecision
from pipeline.runtime.kv_cache.registry import DEFAULT_POLICY, find_policy
from pipeline.text.prompt import check_texts

MAX_DRAFT_LENGTH = 8
DRAFT_LENGTHS = range(MAX_DRAFT_LENGTH + 1)  # 0 is autoregression
MAX_NEW_TOKENS = 2048
MAX_SEED = 2**32 - 1
MAX_STOPS, MAX_STOP_LENGTH = 4, 200  # stop texts, and characters of each
MAX_LOGPROBS = 20
_ELSEWHERE = {"form": False}  # of a field that is the chat API's alone


@dataclass(frozen=True, slots=True)
class Request:
    """One instruction and how to answer it.

    Args:
        instruction: what Dolly should do.
        context: a passage to do it with, or empty.
        max_new_tokens: N, the limit of new tokens in a lane, the end key included.
        temperature: 0 is greedy.
        top_p: nucleus, in (0, 1]; 1 keeps everything.
        top_k: keep the k likeliest tokens; 0 keeps everything.
        seed: of each lane's own generator.
        draft_length: K, tokens drafted per round; "auto" selects the fastest in each round.
        kv_cache: the name of a cache policy.
        drafter: the name of a drafter.
        verification: the name of a way to verify drafts; "typical" is lossy.
        kv_precision: of the keys and values; None selects one that keeps speculation lossless.
        stop: texts before the first of which the answer ends.
        logprobs: of how many of the likeliest tokens the log-probabilities are reported, beside
            those of the answer's own; None of no tokens.

    Raises:
        UserError: a value is outside its range.
    """

    instruction: str
    context: str = ""
    max_new_tokens: int = 100
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    draft_length: int | Literal["auto"] = 4
    kv_cache: str = DEFAULT_POLICY
    drafter: str = DEFAULT_DRAFTER
    kv_precision: KVPrecision | None = None
    verification: str = DEFAULT_VERIFIER
    stop: tuple[str, ...] = field(default=(), metadata=_ELSEWHERE)
    logprobs: int | None = field(default=None, metadata=_ELSEWHERE)

    def __post_init__(self) -> None:
        check_texts(self.instruction, self.context)
        _whole("new tokens", self.max_new_tokens, 1, MAX_NEW_TOKENS)
        _real("temperature", self.temperature, 0.0, 5.0, "0 is greedy")
        _real("top-p", self.top_p, 0.0, 1.0, "1 keeps every token")
        if self.top_p == 0:
            raise UserError("top-p", self.top_p, "choose more than 0; temperature 0 is greedy")
        _whole("top-k", self.top_k, 0, 1_000_000)
        _whole("seed", self.seed, 0, MAX_SEED)
        if self.draft_length != "auto":
            _whole("draft length", self.draft_length, 1, MAX_DRAFT_LENGTH, ' or "auto"')
        find_policy(self.kv_cache)
        find_drafter(self.drafter)
        find_verifier(self.verification)
        if self.kv_precision is not None and self.kv_precision not in get_args(KVPrecision):
            choices = _either(get_args(KVPrecision))
            raise UserError("KV precision", self.kv_precision, f"choose {choices}")
        object.__setattr__(self, "stop", _stops(self.stop))
        if self.logprobs is not None:
            _whole("logprobs", self.logprobs, 0, MAX_LOGPROBS)

    def budget(self, prompt_tokens: int, context_length: int | None) -> int:
        """New tokens that fit behind a prompt; a context of None has no limit.

        Raises:
            UserError: none do.
        """
        if context_length is None:
            return self.max_new_tokens
        if prompt_tokens >= context_length:
            remedy = f"shorten it: the context holds {context_length}, the answer included"
            raise UserError("prompt tokens", prompt_tokens, remedy)
        return min(self.max_new_tokens, context_length - prompt_tokens)

    @property
    def form(self) -> dict[str, Any]:
        """Its fields that the form, its link and the page's API have, in their order."""
        return {name: getattr(self, name) for name in FORM_FIELDS}

    @property
    def recorded(self) -> dict[str, Any]:
        """The trace's `request`: the fields, and what the registries know of the methods.

        exact: verification keeps the target's distribution. jointly: it tests the tokens of a
        sampled draft together. at_once: a pair's block draft, or none of its models, drafts.
        """
        verifier, drafter = find_verifier(self.verification), find_drafter(self.drafter)
        return {
            **asdict(self),
            "exact": verifier.exact,
            "jointly": verifier.jointly,
            "at_once": drafter.block_draft or not drafter.draft_model,
        }

    @property
    def sampling(self) -> SamplingParams:
        return SamplingParams(self.temperature, self.top_k, self.top_p, self.seed)


FORM_FIELDS = tuple(one.name for one in fields(Request) if one.metadata != _ELSEWHERE)


def _stops(stops: object) -> tuple[str, ...]:
    """Stop texts, of which a file has a list."""
    texts = tuple(stops) if isinstance(stops, list | tuple) else (stops,)
    if len(texts) > MAX_STOPS:
        raise UserError("stop", len(texts), f"choose at most {MAX_STOPS} texts")
    for text in texts:
        if not isinstance(text, str) or not 1 <= len(text) <= MAX_STOP_LENGTH:
            raise UserError("stop", text, f"choose texts of 1 to {MAX_STOP_LENGTH} characters")
    return texts


def _whole(name: str, value: object, low: int, high: int, otherwise: str = "") -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise UserError(name, value, f"choose a whole number from {low} to {high:,}{otherwise}")


def _real(name: str, value: object, low: float, high: float, note: str) -> None:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not low <= number <= high:  # NaN fails every comparison
        raise UserError(name, value, f"choose a number from {low:g} to {high:g}; {note}")


def _either(names: tuple[str, ...]) -> str:
    return ", ".join(names[:-1]) + " or " + names[-1]
