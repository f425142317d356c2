"""Prompt lookup: copies from the text instead of running a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pipeline.decoding.drafters.drafter import DrafterSpec, Parts, ShouldContinue
from pipeline.decoding.events import Step
from pipeline.decoding.lm import Hidden
from pipeline.decoding.sampling import SamplingParams
from pipeline.decoding.verification import Draft


class Match(NamedTuple):
    """The tokens that followed an earlier occurrence of the text's last n-gram.

    Attributes:
        tokens: to copy; an end token is the last.
        confidence: the length of the n-gram as a share of the longest one, 0 to 1.
    """

    tokens: tuple[int, ...] = ()
    confidence: float = 0.0


class PromptLookupDrafter:
    """Copies the tokens that followed an earlier occurrence of the text's last n-gram (prompt
    lookup decoding, Saxena 2023).

    It uses the longest n-gram that occurs earlier, at its latest occurrence. Without one, the draft
    is empty. The draft is deterministic, so `Draft.probs` is None.

    Args:
        end_ids: tokens that end the text.
        longest, shortest: lengths of the n-grams, in tokens.
    """

    kv_bytes = 0

    def __init__(self, end_ids: frozenset[int], longest: int = 4, shortest: int = 2) -> None:
        self._end_ids = end_ids
        self._sizes = range(longest, shortest - 1, -1)
        self._text: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}  # n-gram -> index of what last followed it

    def __len__(self) -> int:
        return len(self._text)

    def prefill(self, tokens: Sequence[int], hidden: Hidden | None = None) -> None:
        self._read(tokens)

    def propose(
        self,
        tokens: Sequence[int],
        max_tokens: int,
        params: SamplingParams,
        rng: np.random.Generator,
        should_continue: ShouldContinue | None = None,
    ) -> Draft:
        return self.draft(self.look_up(tokens, max_tokens), should_continue)

    def look_up(self, tokens: Sequence[int], max_tokens: int) -> Match:
        """Returns at most `max_tokens` tokens that may follow `tokens`."""
        self._read(tokens[len(self._text) :])
        for size in self._sizes:
            start = self._after.get(tuple(self._text[-size:]))
            if start is not None:
                found = tuple(self._text[start : start + max_tokens])
                ends = (i for i, token in enumerate(found, 1) if token in self._end_ids)
                return Match(found[: next(ends, len(found))], size / self._sizes[0])
        return Match()

    def draft(self, match: Match, should_continue: ShouldContinue | None) -> Draft:
        """The draft of a match, up to where `should_continue` is false."""
        if should_continue:
            for count, token in enumerate(match.tokens, start=1):
                if token in self._end_ids or not should_continue(match.confidence):
                    return Draft(match.tokens[:count])
        return Draft(match.tokens)

    def observe(self, step: Step, hidden: Hidden | None = None) -> None:
        pass

    def rollback(self, length: int) -> None:
        kept = self._text[:length]
        if len(kept) < length:
            raise ValueError(f"cannot roll {len(kept)} tokens back to {length}")
        if length < len(self._text):
            self._text, self._after = [], {}
            self._read(kept)

    def _read(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            for size in self._sizes:
                if size <= len(self._text):
                    self._after[tuple(self._text[-size:])] = len(self._text)
            self._text.append(token)


def _build(parts: Parts) -> PromptLookupDrafter:
    return PromptLookupDrafter(parts.end_ids)


LOOKUP = DrafterSpec(
    name="lookup",
    title="Lookup: copies from the text so far",
    build=_build,
    draft_model=False,
    costs=lambda costs: replace(costs, draft=0.0, block=0.0),
)
