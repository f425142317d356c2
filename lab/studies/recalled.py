"""Models that compute what follows each text once, and recall it from then on.

For drawing many texts that begin alike. The decoders and the logits are the same; a forward pass of
a text that is known costs nothing. The models run with their own caches, which are rolled back to
what the texts have in common, so only one generation at a time may run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pipeline.decoding.lanes import Lanes
from pipeline.decoding.lm import BlockDraft, CausalLM, Hidden, Output
from pipeline.decoding.sampling import Logits

_PASS = 8  # tokens; wider passes may round differently

_Text = tuple[int, ...]  # what follows the context


def recalled(lanes: Lanes, context: Sequence[int]) -> Lanes:
    """Lanes with models that compute each text once, for prompts that are this context.

    Args:
        lanes: of the models themselves, with a draft model.
        context: at least two tokens.
    """
    assert lanes.draft
    read = context[:-1]
    target, draft = (Results(new(()), read) for new in (lanes.target, lanes.draft))
    block: Callable[[], BlockDraft] | None = None
    if lanes.block_draft and target.hidden is not None:
        block = ResumedBlock(lanes.block_draft(), read, target.hidden).again
    return replace(
        lanes,
        target=lambda prompt: RecalledLM(target),
        draft=lambda prompt: RecalledLM(draft),
        block_draft=block,
    )


class Results:
    """What a model computes after each text that begins with a context.

    Args:
        model: a new sequence of it.

    Attributes:
        hidden: of the context's tokens.
    """

    def __init__(self, model: CausalLM, context: Sequence[int]) -> None:
        self.model, self.context = model, [*context]
        self.hidden = model.forward(context, 0).hidden
        self._cached: _Text = ()  # in the model's cache, after the context
        self._known: dict[_Text, tuple[Logits, Hidden | None]] = {}

    def after(self, text: _Text, count: int) -> list[tuple[Logits, Hidden | None]]:
        """Logits and hidden states after each of the last `count` tokens of a text."""
        asked = [text[:end] for end in range(len(text) - count + 1, len(text) + 1)]
        first = next((at for at, part in enumerate(asked) if part not in self._known), None)
        if first is not None:
            self._compute(text, len(asked[first]) - 1)
        return [self._known[part] for part in asked]

    def _compute(self, text: _Text, start: int) -> None:
        """Computes the rows of the tokens from `start` on. Those before it that are not cached are
        read apart: all passes are of few tokens, so that their logits are those of one token.
        """
        pairs = enumerate(zip(self._cached, text, strict=False))
        common = min(len(self._cached), len(text))
        kept = min(start, next((at for at, (one, other) in pairs if one != other), common))
        self.model.rollback(len(self.context) + kept)
        for begin in range(kept, start, _PASS):
            self.model.forward(text[begin : min(begin + _PASS, start)], 0)
        logits, hidden = self.model.forward(text[start:], len(text) - start)
        self._cached = text
        for at, row in enumerate(logits):
            states = None if hidden is None else hidden[at : at + 1]
            self._known[text[: start + at + 1]] = row, states


class RecalledLM:
    """A sequence of a model (`CausalLM`) that begins with the context, for one generation."""

    def __init__(self, results: Results) -> None:
        self.vocab_size, self.token_ids = results.model.vocab_size, results.model.token_ids
        self._results = results
        self._text = [*results.context]
        self._unread = results.hidden  # hidden states that the first pass returns too

    @property
    def kv_bytes(self) -> int:
        return self._results.model.kv_bytes

    def __len__(self) -> int:
        return len(self._text)

    def forward(self, tokens: Sequence[int], logits_to_keep: int, pad_to: int = 0) -> Output:
        self._text += tokens
        begin = len(self._results.context)
        found = self._results.after(tuple(self._text[begin:]), len(tokens)) if tokens else []
        states = [hidden for _, hidden in found if hidden is not None]
        if self._unread is not None:
            states, self._unread = [self._unread, *states], None
        logits = [row for row, _ in found[len(found) - logits_to_keep :]]
        return Output(
            np.stack(logits) if logits else np.empty((0, self.vocab_size), np.float32),
            np.concatenate(states) if states else None,
        )

    def rollback(self, length: int) -> None:
        if length > len(self._text):
            raise ValueError(f"cannot roll {len(self._text)} tokens back to {length}")
        del self._text[length:]


class ResumedBlock:
    """A sequence of a block draft (`BlockDraft`) that has read the context: the first pass of a
    generation, over the context, does nothing, and no rollback drops it.

    Args:
        hidden: the target's, of the context's tokens.
    """

    def __init__(self, model: BlockDraft, context: Sequence[int], hidden: Hidden) -> None:
        self.vocab_size, self.token_ids = model.vocab_size, model.token_ids
        self.length = model.length
        self._model, self._read = model, len(context) - 1  # it has no row for the first token
        if self._read:
            model.forward(context[1:], hidden[:-1], 0)
        self._begun = False

    def again(self) -> BlockDraft:
        """For the next generation."""
        self._model.rollback(self._read)
        self._begun = not self._read
        return self

    @property
    def kv_bytes(self) -> int:
        return self._model.kv_bytes

    def __len__(self) -> int:
        return len(self._model) if self._begun else 0

    def forward(self, tokens: Sequence[int], hidden: Hidden, length: int) -> NDArray[np.float32]:
        if not self._begun:
            self._begun = True
            return np.empty((0, self.vocab_size), np.float32)
        return self._model.forward(tokens, hidden, length)

    def after(self, logits: NDArray[np.float32], previous: int) -> NDArray[np.float32]:
        return self._model.after(logits, previous)

    def rollback(self, length: int) -> None:
        self._model.rollback(max(length, self._read))
