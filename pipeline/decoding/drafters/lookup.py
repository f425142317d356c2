"""Lookup: copies from the text, or from earlier ones, instead of running a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.drafters.drafter import DrafterSpec, ShouldContinue
from pipeline.decoding.economics import AcceptanceRate
from pipeline.decoding.events import Step
from pipeline.decoding.lm import Hidden
from pipeline.decoding.ngrams import NGrams, Place
from pipeline.decoding.sampling import SamplingParams
from pipeline.decoding.verification.tokens import Draft

PRIOR_ACCEPTANCE, PRIOR_WEIGHT = 0.75, 2.0  # assumed before any test; weight in tests


class Match(NamedTuple):
    """The tokens that followed an earlier occurrence of the text's last n-gram.

    Attributes:
        tokens: to copy; an end token is the last.
        size: the length of the n-gram, in tokens.
        remembered: whether it was found in the answer memory.
    """

    tokens: tuple[int, ...] = ()
    size: int = 0
    remembered: bool = False


class LookupDrafter:
    """Copies the tokens that followed an earlier occurrence of the text's last n-gram (prompt
    lookup decoding, Saxena 2023), in the text itself or in the memory of earlier ones
    (SuffixDecoding, Oliaro et al. 2025, arXiv 2411.04975).

    It uses the longest n-gram that occurs, at its latest occurrence; the text comes before the
    memory. Without one, the draft is empty. The draft is deterministic, so `Draft.probs` is None.

    Args:
        end_ids: tokens that end the text.
        memory: the earlier texts that it may copy; None if only from the text itself.
        longest, shortest: lengths of the n-grams that are searched for in the text.
    """

    kv_bytes = 0

    def __init__(
        self,
        end_ids: frozenset[int],
        memory: AnswerMemory | None = None,
        longest: int = 4,
        shortest: int = 2,
    ) -> None:
        self._end_ids, self._memory = end_ids, memory
        self._sizes = range(longest, shortest - 1, -1)
        self._text: list[int] = []
        self._ngrams = NGrams(self._sizes)
        self._found: tuple[Place, bool] | None = None  # for the text so far; in the memory?
        self._rates: dict[tuple[int, bool], AcceptanceRate] = {}  # of matches of a size and kind
        self._drafted = Match()

    def __len__(self) -> int:
        return len(self._text)

    def prefill(self, tokens: Sequence[int], hidden: Hidden | None = None) -> None:
        self._read(tokens)

    def forecast(self, tokens: Sequence[int], max_tokens: int) -> list[float]:
        return self.acceptance(self.look_up(tokens, max_tokens))

    def propose(
        self,
        tokens: Sequence[int],
        max_tokens: int,
        params: SamplingParams,
        rng: np.random.Generator,
        should_continue: ShouldContinue | None = None,
    ) -> Draft:
        self._drafted = self.look_up(tokens, max_tokens)
        return Draft(self._drafted.tokens, remembered=self._drafted.remembered)

    def look_up(self, tokens: Sequence[int], max_tokens: int) -> Match:
        """Returns at most `max_tokens` tokens that may follow `tokens`."""
        self._read(tokens[len(self._text) :])
        if self._found is None:
            self._found = self._search()
        place, remembered = self._found
        copied = place.following(max_tokens)
        ends = (count for count, token in enumerate(copied, 1) if token in self._end_ids)
        return Match(copied[: next(ends, len(copied))], place.size, remembered)

    def acceptance(self, match: Match) -> list[float]:
        """The acceptance rate expected of each of its tokens, from the tests of such matches."""
        rate = self._rate(match).estimate(PRIOR_ACCEPTANCE, PRIOR_WEIGHT)
        return [rate] * len(match.tokens)

    def observe(self, step: Step, hidden: Hidden | None = None) -> None:
        self._rate(self._drafted).add(step.accepted, step.tested)

    def rollback(self, length: int) -> None:
        kept = self._text[:length]
        if len(kept) < length:
            raise ValueError(f"cannot roll {len(kept)} tokens back to {length}")
        if length < len(self._text):
            self._text, self._ngrams, self._found = [], NGrams(self._sizes), None
            self._read(kept)

    def _read(self, tokens: Sequence[int]) -> None:
        if tokens:
            self._found = None
            self._text += tokens
            self._ngrams.read(tokens)

    def _rate(self, match: Match) -> AcceptanceRate:
        return self._rates.setdefault((match.size, match.remembered), AcceptanceRate())

    def _search(self) -> tuple[Place, bool]:
        place = self._ngrams.find(self._text)
        remembered = Place() if self._memory is None else self._memory.find(self._text)
        return (remembered, True) if remembered.size > place.size else (place, False)


LOOKUP = DrafterSpec(
    name="lookup",
    title="Lookup: copies from the text so far",
    build=lambda setup: LookupDrafter(setup.end_ids),
    draft_model=False,
    copies=True,
    costs=lambda costs: replace(costs, draft=0.0, block_draft=0.0),
)
