"""`OVBlockDraft`: a draft model that proposes a block of tokens in one forward pass.

Its IR is a causal language model with two more inputs, a row for each token: the target's hidden
states that the token was predicted from, and a slot. The row of a cached token has slot 0. To
predict the tokens after the next, the newest token is fed in again with the slots 1, 2, …, each at
the position that it stands for; these rows attend to the cache and to each other, and are rolled
back.

A slot does not know which tokens were drawn before it. So a bigram term of low rank, which depends
on the token before, is added to its likeliest logits once that is drawn (DSpark's Markov head).

Of its `config.json`: "block": how many tokens it proposes at most; "hidden_layers": those of the
target that it reads, from 0; "bigram": the file of the bigram term, float16[2, vocab, rank].
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.decoding.lm import Hidden
from pipeline.errors import UserError
from pipeline.runtime.bindings import Arrays
from pipeline.runtime.ir import BlockDraftConfig, read_config
from pipeline.runtime.model import DEFAULT_OPTIONS, OVModel, RuntimeOptions
from pipeline.runtime.sequence import FURTHER_INPUTS, SLOTS, TARGET_HIDDEN, OVCausalLM

_CORRECTED = 64  # rows of the vocabulary
TYPICAL_ROWS = 8  # of a pass: four drafted tokens, and as many that the last round emitted


class Bigram:
    """The bigram term of a model's logits: before[previous] . after[token].

    Args:
        before, after: float32[vocab, rank].
    """

    def __init__(self, before: NDArray[np.float32], after: NDArray[np.float32]) -> None:
        self._before, self._after = before, after

    def add(self, logits: NDArray[np.float32], previous: int) -> NDArray[np.float32]:
        """The logits after the row `previous` of the vocabulary.

        The term is added to the likeliest rows only, at least `_CORRECTED`. A product with the
        whole matrix takes longer, and starts threads of NumPy's that compete with the next forward
        pass for the cores.
        """
        likeliest = np.flatnonzero(logits >= _bound(logits))
        corrected = logits.copy()
        corrected[likeliest] += self._after[likeliest] @ self._before[previous]
        return corrected


def _bound(logits: NDArray[np.float32]) -> float:
    """At least `_CORRECTED` logits are no less, or all where there are fewer: the least of so many
    maxima, each of other logits. Selecting exactly as many takes six times as long.
    """
    whole = len(logits) - len(logits) % _CORRECTED
    maxima = logits[:whole].reshape(-1, _CORRECTED).max(axis=0, initial=-np.inf)
    return float(maxima.min())


def read_bigram(path: Path, vocab_size: int) -> Bigram:
    """Raises UserError if the file is missing or damaged, or does not fit the model."""
    try:
        both = np.load(path)
    except (OSError, ValueError):
        remedy = "is missing or damaged; copy it again from where the draft was made"
        raise UserError("block draft", str(path), remedy) from None
    if both.ndim != 3 or both.shape[:2] != (2, vocab_size):
        remedy = f"must be an array of 2 x {vocab_size} x rank, as the model's vocabulary"
        raise UserError("block draft", str(path), remedy)
    return Bigram(*both.astype(np.float32))


class OVBlockModel(OVModel):
    """The weights of a block draft, compiled once and shared by its sequences.

    Args:
        folder, options: as an `OVModel`'s.

    Attributes:
        length: the tokens that it proposes at most.

    Raises:
        UserError: as for an `OVModel`; or the model is no block draft, or its bigram term is
            damaged.
    """

    def __init__(self, folder: Path, options: RuntimeOptions = DEFAULT_OPTIONS) -> None:
        config = _block_config(folder)
        super().__init__(folder, options)
        if {*self.compiled.rows} != {*FURTHER_INPUTS}:
            remedy = f"lacks the inputs {' and '.join(FURTHER_INPUTS)}; copy it again"
            raise UserError("block draft", str(folder), remedy)
        self.length = config.length
        self._bigram = read_bigram(config.bigram, self.vocab_size)

    @staticmethod
    def hidden_layers(folder: Path) -> tuple[int, ...]:
        """The layers of the target, from 0, whose hidden states the model in a folder reads."""
        return _block_config(folder).hidden_layers

    def block_draft(self, vocab_size: int | None = None) -> OVBlockDraft:
        """A new sequence; its logits are of the first `vocab_size` token ids only."""
        return OVBlockDraft(self.sequence(vocab_size), self._bigram, self.length)


def _block_config(folder: Path) -> BlockDraftConfig:
    config = read_config(folder).block_draft
    if config is None:
        remedy = 'has no "block" in its config.json; name the folder of a block draft'
        raise UserError("block draft", str(folder), remedy)
    return config


class OVBlockDraft:
    """One sequence of a block draft; see `BlockDraft` in `pipeline.decoding.lm`.

    Args:
        sequence: a sequence of the model, with a cache of its own.
        bigram: the model's bigram term.
        length: how many tokens it proposes at most.
    """

    def __init__(self, sequence: OVCausalLM, bigram: Bigram, length: int) -> None:
        self.vocab_size, self.token_ids = sequence.vocab_size, sequence.token_ids
        self.length = length
        self._sequence, self._bigram = sequence, bigram
        self._hidden: Hidden | None = None  # of every token, with room for more

    @property
    def kv_bytes(self) -> int:
        return self._sequence.kv_bytes

    def __len__(self) -> int:
        return len(self._sequence)

    def forward(self, tokens: Sequence[int], hidden: Hidden, length: int) -> NDArray[np.float32]:
        past, kept, ahead = len(self), len(self) + len(tokens), max(0, length - 1)
        fed = [*tokens, *[tokens[-1]] * ahead]
        states = self._with_room(kept + ahead, hidden.shape[1])
        states[past:kept], states[kept : kept + ahead] = hidden, hidden[-1]
        slots = np.zeros(kept + ahead, np.int64)
        slots[kept:] = range(1, length)
        # Passes of one size, whatever was accepted: as many tokens as a round can emit.
        rows: Arrays = {TARGET_HIDDEN: states, SLOTS: slots}
        output = self._sequence.forward(fed, length, 2 * length, rows)
        self._sequence.rollback(kept)
        return output.logits

    def _with_room(self, count: int, width: int) -> Hidden:
        """The states of the tokens so far, with room for `count` in all."""
        if self._hidden is None or count > len(self._hidden):
            grown = np.zeros((2 * count, width), np.float32)
            if self._hidden is not None:
                grown[: len(self._hidden)] = self._hidden
            self._hidden = grown
        return self._hidden

    def after(self, logits: NDArray[np.float32], previous: int) -> NDArray[np.float32]:
        return self._bigram.add(logits, self._sequence.row_of(previous))

    def rollback(self, length: int) -> None:
        self._sequence.rollback(length)
