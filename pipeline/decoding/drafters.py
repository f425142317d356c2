"""Who proposes the tokens that the target verifies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.decoding.costs import Costs
from pipeline.decoding.lm import CausalLM
from pipeline.decoding.sampling import SamplingParams, probabilities, sample
from pipeline.decoding.verification import Draft

DrafterKind = Literal["model", "lookup", "hybrid"]
GoOn = Callable[[float], bool]  # asked after each token, with the confidence in it


class Drafter(Protocol):
    """Proposes; never decides."""

    @property
    def kv_bytes(self) -> int: ...

    def __len__(self) -> int: ...

    def prefill(self, tokens: Sequence[int]) -> None:
        """Takes in more of a prompt, so that the first proposal is as quick as the others."""
        ...

    def propose(
        self,
        tokens: Sequence[int],
        k: int,
        params: SamplingParams,
        rng: np.random.Generator,
        go_on: GoOn | None = None,
    ) -> Draft:
        """At most `k` tokens to follow `tokens`: none after an end token, and none after `go_on`,
        asked with the confidence in a token, says no. A token asked about is part of the draft,
        else its distribution would not be the one that it is tested with.
        """
        ...

    def rollback(self, length: int) -> None: ...


class ModelDrafter:
    """A small model of the target's vocabulary, run token by token.

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

    def prefill(self, tokens: Sequence[int]) -> None:
        self._model.forward(tokens, logits_to_keep=0)

    def propose(
        self,
        tokens: Sequence[int],
        k: int,
        params: SamplingParams,
        rng: np.random.Generator,
        go_on: GoOn | None = None,
    ) -> Draft:
        drafted: list[int] = []
        logits: list[NDArray[np.float32]] = []
        # A greedy draft is certain: no distribution to keep.
        probs = np.zeros((k, self._vocab_size), np.float32) if params.temperature else None
        pending = tokens[len(self._model) :]
        while len(drafted) < k:
            common = self._model.forward(pending, logits_to_keep=1).logits[:, : self._vocab_size]
            if probs is None:
                drafted.append(int(common.argmax()))
                logits.append(common[0])
            else:
                row = probs[len(drafted)]
                row[: common.shape[1]] = probabilities(common, params)[0]
                drafted.append(sample(row, rng))
            if drafted[-1] in self._end_ids or (go_on and not go_on(_confidence(common[0]))):
                break
            pending = drafted[-1:]
        kept = None if probs is None else probs[: len(drafted)]
        return Draft(tuple(drafted), kept, tuple(logits))

    def rollback(self, length: int) -> None:
        self._model.rollback(length)


class PromptLookupDrafter:
    """Copies what followed the text's last words when they stood there before; no model at all.

    Prompt lookup (Saxena 2023): of the earlier places where the longest ending of the text stands,
    the latest is taken. No such place, no draft. The tokens are certain, so `Draft.probs` is None.

    Args:
        end_ids: tokens after which there is nothing to draft.
        longest, shortest: tokens of an ending that is looked for.
    """

    kv_bytes = 0

    def __init__(self, end_ids: frozenset[int], longest: int = 4, shortest: int = 2) -> None:
        self._end_ids = end_ids
        self._sizes = range(longest, shortest - 1, -1)
        self._text: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}  # where each ending was last followed by what

    def __len__(self) -> int:
        return len(self._text)

    def prefill(self, tokens: Sequence[int]) -> None:
        self._read(tokens)

    def propose(
        self,
        tokens: Sequence[int],
        k: int,
        params: SamplingParams,
        rng: np.random.Generator,
        go_on: GoOn | None = None,
    ) -> Draft:
        self._read(tokens[len(self._text) :])
        for size in self._sizes:
            place = self._after.get(tuple(self._text[-size:]))
            if place is not None:
                return Draft(self._copied(place, k, size / self._sizes[0], go_on))
        return Draft()

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

    def _copied(self, place: int, k: int, confidence: float, go_on: GoOn | None) -> tuple[int, ...]:
        copied: list[int] = []
        for token in self._text[place : place + k]:
            copied.append(token)
            if token in self._end_ids or (go_on and not go_on(confidence)):
                break
        return tuple(copied)


class HybridDrafter:
    """Copies where that is expected to gain more, and lets the model draft elsewhere.

    What is expected is tokens a second of the round: a copy costs nothing to make, the model's
    token costs `costs.draft`, and how often either passes is counted as the text goes on.

    Args:
        lookup: who copies.
        model: who is asked where nothing, or nothing promising, can be copied.
        costs: of the pair.
    """

    def __init__(self, lookup: PromptLookupDrafter, model: ModelDrafter, costs: Costs) -> None:
        self._lookup, self._model, self._costs = lookup, model, costs
        self._passed: dict[Drafter, float] = {lookup: 1.5, model: 1.5}  # as if two had been tested
        self._tested: dict[Drafter, float] = {lookup: 2.0, model: 2.0}
        self._last: tuple[Drafter, int, tuple[int, ...]] | None = None  # who, from where on, what

    @property
    def kv_bytes(self) -> int:
        return self._model.kv_bytes

    def __len__(self) -> int:
        return max(len(self._lookup), len(self._model))

    def prefill(self, tokens: Sequence[int]) -> None:
        self._model.prefill(tokens)  # the look-up reads the whole text when it is first asked

    def propose(
        self,
        tokens: Sequence[int],
        k: int,
        params: SamplingParams,
        rng: np.random.Generator,
        go_on: GoOn | None = None,
    ) -> Draft:
        self._learn(tokens)
        copied = len(self._lookup.propose(tokens, k, params, rng))
        promising = copied and self._rate(self._lookup, copied, 0.0) >= self._rate(
            self._model, k, self._costs.draft
        )
        chosen: Drafter = self._lookup if promising else self._model
        draft = chosen.propose(tokens, k, params, rng, go_on)
        self._last = chosen, len(tokens), draft.tokens
        return draft

    def rollback(self, length: int) -> None:
        for drafter in (self._lookup, self._model):
            drafter.rollback(min(len(drafter), length))
        if not length:
            self._last = None

    def _learn(self, tokens: Sequence[int]) -> None:
        """What the text shows to have become of the last draft."""
        if self._last is None:
            return
        chosen, start, drafted = self._last
        stands = zip(drafted, tokens[start:], strict=False)
        passed = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], stands))
        self._passed[chosen] += passed
        self._tested[chosen] += min(passed + 1, len(drafted))

    def _rate(self, drafter: Drafter, count: int, draft_s: float) -> float:
        """Tokens a second of a round in which `drafter` drafts `count`."""
        acceptance = self._passed[drafter] / self._tested[drafter]
        tokens = sum(acceptance**place for place in range(count + 1))
        width = min(count, len(self._costs.verify) - 1)
        return tokens / (count * draft_s + self._costs.verify[width])


def _confidence(logits: NDArray[np.float32]) -> float:
    """The probability of the likeliest token."""
    return 1 / float(np.exp(logits - logits.max()).sum())
