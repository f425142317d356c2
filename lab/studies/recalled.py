"""Models that compute what follows each text once, and recall it from then on.

For drawing many texts that begin alike. The decoders are the same and so are the logits, but a
forward pass of a text that is known costs nothing, and a distribution is over the few tokens that
occur. The models run with their own caches, which are rolled back to what the texts have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pipeline.decoding.drafters import check_drafter
from pipeline.decoding.drafters.model import MODEL
from pipeline.decoding.lanes import Lanes
from pipeline.decoding.lm import BlockDraft, CausalLM, Hidden, Output
from pipeline.decoding.sampling import Logits

# Numbers for tokens that occur after a context; the first are for those that no draft can propose.
SIZE, MISSING = 2560, 512
_GAP = 0.05  # between the least logit that is kept and the others
_SLOPE = 0.02  # of the others from the first to the last: NumPy's partition is slow for equal ones
_PASS = 8  # tokens; wider passes may round differently

_Text = tuple[int, ...]  # in numbers


@dataclass(frozen=True, slots=True)
class Recalled:
    """Lanes of one context, in the numbers of its tokens.

    Attributes:
        lanes: of prompts that are `prompt`.
        prompt: the context.
        numbers: of the tokens.
    """

    lanes: Lanes
    prompt: list[int]
    numbers: Numbers


def recalled(lanes: Lanes, context: Sequence[int], top_k: int) -> Recalled:
    """Lanes with models that compute each text once.

    Args:
        lanes: of the models themselves.
        context: at least two tokens.
        top_k: how many of the likeliest tokens keep their logits; no fewer may be sampled from.
    """
    check_drafter(MODEL.name, lanes.draft is not None, False)
    assert lanes.draft
    models = [new(()) for new in (lanes.target, lanes.draft)]
    block = lanes.block_draft() if lanes.block_draft else None
    numbers = Numbers([models[1].token_ids, *([] if block is None else [block.token_ids])])
    prompt, vocab_size = numbers.of(context), models[0].vocab_size
    target, draft = (
        LMResults(model, prompt[:-1], Rows(numbers, model.token_ids, vocab_size, top_k))
        for model in models
    )
    new_block: Callable[[], BlockDraft] | None = None
    if block is not None and target.hidden is not None:
        rows = Rows(numbers, block.token_ids, vocab_size, top_k)
        results = BlockResults(block, prompt[:-1], target.hidden, rows)
        new_block = partial(RecalledBlock, results)
    own = replace(
        lanes,
        target=lambda prompt: RecalledLM(target),
        draft=lambda prompt: RecalledLM(draft),
        block_draft=new_block,
        end_ids=frozenset(numbers.of(lanes.end_ids)),
    )
    return Recalled(own, prompt, numbers)


class Numbers:
    """Numbers the tokens in the order in which they occur.

    Args:
        proposed: the tokens of each draft model; None if it has all.
    """

    def __init__(self, proposed: Sequence[NDArray[np.int64] | None]) -> None:
        self._proposed = {int(token) for ids in proposed if ids is not None for token in ids}
        self.all_proposed = any(ids is None for ids in proposed)
        self._of: dict[int, int] = {}
        self._tokens: dict[int, int] = {}
        self._missing, self._others = iter(range(MISSING)), iter(range(MISSING, SIZE))

    def of(self, tokens: Iterable[int]) -> list[int]:
        return [self._of[t] if t in self._of else self._add(t) for t in map(int, tokens)]

    def tokens(self, numbers: Iterable[int]) -> list[int]:
        """The tokens of numbers."""
        return [self._tokens[number] for number in numbers]

    def _add(self, token: int) -> int:
        missing = not self.all_proposed and token not in self._proposed
        number = next(self._missing if missing else self._others, None)
        if number is None:
            raise ValueError(f"more tokens occur than the {SIZE} that can be numbered")
        self._of[token], self._tokens[number] = number, token
        return number


class Rows:
    """Logits over the numbers of tokens, for those over a model's vocabulary.

    A draft model with a part of the vocabulary keeps a part here too: `token_ids` are the numbers
    that are not for missing tokens.

    Args:
        numbers: of the tokens.
        token_ids: of the model's logits; None if logit i is of token i.
        vocab_size: the target's; what a draft model has beyond it is never proposed.
        top_k: how many of the likeliest tokens keep their logits.
    """

    def __init__(
        self,
        numbers: Numbers,
        token_ids: NDArray[np.int64] | None,
        vocab_size: int,
        top_k: int,
    ) -> None:
        self.numbers, self._source = numbers, token_ids
        self._vocab_size, self._top_k = vocab_size, top_k
        partial_vocabulary = token_ids is not None and not numbers.all_proposed
        self._first = MISSING if partial_vocabulary else 0
        self.token_ids = np.arange(MISSING, SIZE) if partial_vocabulary else None
        self.vocab_size = SIZE - self._first

    def small(self, row: Logits) -> Logits:
        """The likeliest logits of a row, and what the others add up to, spread evenly below them.

        So top-k sampling keeps the same tokens, and the probability of the likeliest, with which a
        draft is ended, is as it was.
        """
        row = row[: self._vocab_size]
        count = min(self._top_k, len(row))
        edge = np.partition(row, -count)[-count]
        (kept,) = np.nonzero(row >= edge)
        small = np.full(self.vocab_size, -np.inf, np.float32)
        top = row.max()
        rest = float(np.exp(row[row < edge] - top).sum())
        if rest:
            even = top + np.log(rest / (len(small) - len(kept)))
            small[:] = min(even, edge - _GAP) + np.linspace(-_SLOPE, _SLOPE, len(small)) / 2
        tokens = kept if self._source is None else self._source[kept]
        small[np.array(self.numbers.of(tokens)) - self._first] = row[kept]
        return small


class LMResults:
    """What a model computes after each text that begins with a context.

    Args:
        model: a new sequence of it.
        context: the numbers of tokens.
        rows: makes its logits small.

    Attributes:
        hidden: of the context's tokens.
    """

    def __init__(self, model: CausalLM, context: Sequence[int], rows: Rows) -> None:
        self.model, self.context, self.rows = model, [*context], rows
        self.hidden = self._forward(context, 0).hidden
        self._cached: _Text = ()  # in the model's cache, after the context
        self._known: dict[_Text, tuple[Logits, Hidden | None]] = {}

    def after(self, text: _Text, count: int) -> list[tuple[Logits, Hidden | None]]:
        """Logits and hidden states after each of the last `count` tokens of a text.

        Args:
            text: what follows the context.
        """
        asked = [text[:end] for end in range(len(text) - count + 1, len(text) + 1)]
        first = next((at for at, part in enumerate(asked) if part not in self._known), None)
        if first is not None:
            self._compute(text, len(asked[first]) - 1)
        return [self._known[part] for part in asked]

    def _compute(self, text: _Text, start: int) -> None:
        """Computes the rows of the tokens from `start` on. Those before it that are not cached are
        read apart: all passes are of few tokens, so that their logits are those of one token.
        """
        kept = min(start, _common(self._cached, text))
        self.model.rollback(len(self.context) + kept)
        for begin in range(kept, start, _PASS):
            self._forward(text[begin : min(begin + _PASS, start)], 0)
        logits, hidden = self._forward(text[start:], len(text) - start)
        self._cached = text
        for at, row in enumerate(logits):
            states = None if hidden is None else hidden[at : at + 1]
            self._known[text[: start + at + 1]] = self.rows.small(row), states

    def _forward(self, text: Sequence[int], logits_to_keep: int) -> Output:
        return self.model.forward(self.rows.numbers.tokens(text), logits_to_keep)


class RecalledLM:
    """A sequence of a model (`CausalLM`) that begins with the context, for one generation."""

    def __init__(self, results: LMResults) -> None:
        self.vocab_size, self.token_ids = results.rows.vocab_size, results.rows.token_ids
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
        rows = self._results.after(tuple(self._text[begin:]), len(tokens)) if tokens else []
        states = [hidden for _, hidden in rows if hidden is not None]
        if self._unread is not None:
            states, self._unread = [self._unread, *states], None
        logits = [row for row, _ in rows[len(rows) - logits_to_keep :]]
        return Output(
            np.stack(logits) if logits else np.empty((0, self.vocab_size), np.float32),
            np.concatenate(states) if len(states) > 1 else next(iter(states), None),
        )

    def rollback(self, length: int) -> None:
        if length > len(self._text):
            raise ValueError(f"cannot roll {len(self._text)} tokens back to {length}")
        del self._text[length:]


class BlockResults:
    """What a block draft computes after each text that begins with a context.

    Args:
        model: a new sequence of it.
        context: the numbers of tokens.
        hidden: the target's, of these tokens.
        rows: makes its logits small.
    """

    def __init__(
        self, model: BlockDraft, context: Sequence[int], hidden: Hidden, rows: Rows
    ) -> None:
        self.model, self.rows = model, rows
        self.context = [*context[1:]]  # it has no row for the first token
        if self.context:
            model.forward(rows.numbers.tokens(self.context), hidden[: len(self.context)], 0)
        self._cached: _Text = ()
        self._known: dict[tuple[_Text, int], list[Logits]] = {}
        self._later: dict[tuple[_Text, int, int, int], Logits] = {}

    def first(self, text: _Text, hidden: Sequence[Hidden], length: int) -> Logits:
        """The logits of the next token, if the next `length` are predicted.

        Args:
            text: what follows the context, at least one token.
            hidden: float32[1, width], that each of its tokens was predicted from.
        """
        if (text, length) not in self._known:
            kept = min(len(text) - 1, _common(self._cached, text))
            self.model.rollback(len(self.context) + kept)
            states, unread = np.concatenate(hidden[kept:]), self.rows.numbers.tokens(text[kept:])
            first, *later = self.model.forward(unread, states, length)
            self._known[text, length] = [self.rows.small(first), *later]
            self._cached = text
        return self._known[text, length][0]

    def later(self, text: _Text, length: int, at: int, previous: int) -> Logits:
        """The logits of a later token, at a place that counts from 0, after the one before it."""
        key = text, length, at, previous
        if key not in self._later:
            (token,) = self.rows.numbers.tokens([previous])
            whole = self.model.after(self._known[text, length][at], token)
            self._later[key] = self.rows.small(whole)
        return self._later[key]


class RecalledBlock:
    """A sequence of a block draft (`BlockDraft`), for one generation after the context."""

    def __init__(self, results: BlockResults) -> None:
        self.length = results.model.length
        self.vocab_size, self.token_ids = results.rows.vocab_size, results.rows.token_ids
        self._results = results
        self._text: list[int] = []
        self._hidden: list[Hidden] = []  # of the tokens after the context
        self._asked: tuple[_Text, int] = (), 0

    @property
    def kv_bytes(self) -> int:
        return self._results.model.kv_bytes

    def __len__(self) -> int:
        return len(self._text)

    def forward(self, tokens: Sequence[int], hidden: Hidden, length: int) -> NDArray[np.float32]:
        """As of any block draft; each later row holds its place, for `after`."""
        self._text += tokens
        text = tuple(self._text[len(self._results.context) :])
        if text:
            new = hidden[len(hidden) - (len(text) - len(self._hidden)) :]
            self._hidden += [new[at : at + 1] for at in range(len(new))]
        rows = np.empty((length, self.vocab_size), np.float32)
        rows[:, 0] = range(length)
        if length:
            rows[0] = self._results.first(text, self._hidden, length)
            self._asked = text, length
        return rows

    def after(self, logits: NDArray[np.float32], previous: int) -> NDArray[np.float32]:
        return self._results.later(*self._asked, int(logits[0]), previous)

    def rollback(self, length: int) -> None:
        if length > len(self._text):
            raise ValueError(f"cannot roll {len(self._text)} tokens back to {length}")
        del self._text[length:]
        del self._hidden[max(0, length - len(self._results.context)) :]


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens with which both begin."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
