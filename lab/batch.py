"""Several sequences of a model with the paged cache, extended in one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from pipeline.decoding.lm import Output
from pipeline.runtime.bindings import Bindings, positions
from pipeline.runtime.compiled import Compiled
from pipeline.runtime.graph import HIDDEN, LOGIT_POSITIONS
from pipeline.runtime.kv_cache.paged import PagedKVCache
from pipeline.runtime.kv_cache.policy import Inputs
from pipeline.runtime.sequence import OVCausalLM

_MIN_TOKENS = 2  # of a pass: the matrix products of a single row use another kernel


class PagedBatch:
    """The caches of several sequences, which a forward pass extends together.

    As in `PagedKVCache`, each token goes to the plugin as a sequence of one token, here with the
    blocks of its own sequence, and padding as a sequence without a past.

    Args:
        request: an infer request of the caches' model.
        caches: of one pool, whose keys and values are not quantised.
    """

    def __init__(self, request: ov.InferRequest, caches: Sequence[PagedKVCache]) -> None:
        self._request, self._caches, self._pool = request, caches, caches[0].pool
        if self._pool.quantised:
            raise ValueError("a block that is quantised as a whole takes one token at a time")
        self._bound: dict[str, ov.Tensor] = {}
        self._inputs: Inputs = {}

    @property
    def lengths(self) -> list[int]:
        """Tokens of each sequence."""
        return [*map(len, self._caches)]

    def append(self, tokens: Sequence[Sequence[int]], pad_to: int = 0) -> Inputs:
        """Allocates slots for the new tokens of each sequence, of which some may have none.

        Args:
            tokens: by sequence.
            pad_to: tokens to pad the forward pass to. Padding comes first.

        Returns:
            Arrays that the next call may overwrite.
        """
        new = [(place, token) for place, each in enumerate(tokens) for token in each]
        padding = max(0, max(pad_to, _MIN_TOKENS) - len(new))
        positions = [
            past + place
            for past, each in zip(self.lengths, tokens, strict=True)
            for place in range(len(each))
        ]
        extended = zip(self._caches, tokens, strict=True)
        tables = [cache.extend(len(each)) for cache, each in extended]
        blocks = [[self._pool.padding_block]] * padding + [tables[place] for place, _ in new]
        made: Inputs = {
            "input_ids": np.array([0] * padding + [token for _, token in new], np.int64),
            "position_ids": np.array([0] * padding + positions, np.int64),
            "past_lens": np.array([0] * padding + positions, np.int32),
            "subsequence_begins": np.arange(len(blocks) + 1, dtype=np.int32),
            "block_indices": self._indices(blocks, max(map(len, tables))),
            "block_indices_begins": np.cumsum([0, *map(len, blocks)], dtype=np.int32),
            "max_context_len": np.array(max(self.lengths), np.int32),
        }
        self._bind_pool()
        for name, value in made.items():
            # The same array if possible: binding another one is slow.
            if name not in self._inputs or self._inputs[name].shape != value.shape:
                self._inputs[name] = value
            self._inputs[name][...] = value
        return self._inputs

    def rollback(self, lengths: Sequence[int]) -> None:
        """Drops all but the first tokens of each sequence; ValueError if it has fewer."""
        for cache, length in zip(self._caches, lengths, strict=True):
            cache.rollback(length)

    def _indices(self, blocks: list[Sequence[int]], most: int) -> NDArray[np.int32]:
        """All blocks, in an array that has one size as long as the longest table has."""
        flat = [block for each in blocks for block in each]
        indices = np.full(len(blocks) * most, self._pool.padding_block, np.int32)
        indices[: len(flat)] = flat
        return indices

    def _bind_pool(self) -> None:
        """Binds the pool's tensors, which are others once it has grown."""
        if self._bound is not self._pool.tensors:
            self._bound = self._pool.tensors
            for name, tensor in self._bound.items():
                self._request.set_tensor(name, tensor)


class OVBatch:
    """Sequences of a model, which are extended together from now on.

    Args:
        compiled: the model, as its sequences have it.
        sequences: their caches are paged and not quantised.

    Attributes:
        vocab_size: the number of logits of a token.
        token_ids: the token of each logit; None if logit i is of token i.
    """

    def __init__(self, compiled: Compiled, sequences: Sequence[OVCausalLM]) -> None:
        self.vocab_size, self.token_ids = sequences[0].vocab_size, sequences[0].token_ids
        caches = [each.cache for each in sequences if type(each.cache) is PagedKVCache]
        if len(caches) < len(sequences):
            raise ValueError("only sequences with a paged cache can share a forward pass")
        request = compiled.model.create_infer_request()
        self._compiled, self._request = compiled, request
        self._cache = PagedBatch(request, caches)
        self._bindings = Bindings(request, compiled.inputs)
        self._logits = request.get_tensor("logits")
        self._hidden = request.get_tensor(HIDDEN) if compiled.hidden_width else None

    @property
    def lengths(self) -> list[int]:
        """Tokens in the cache of each sequence."""
        return self._cache.lengths

    def forward(self, tokens: Sequence[Sequence[int]], pad_to: int = 0) -> list[Output]:
        """Appends tokens to each sequence, of which some may get none, and runs the model once.

        Args:
            tokens: by sequence.
            pad_to: tokens of all sequences to pad the forward pass to; see `OVCausalLM.forward`.

        Returns:
            For each sequence, the logits float32[n, vocab] after each of its n tokens, and the
            hidden states there if the model was compiled to return them.
        """
        if self._compiled.vocabulary:
            tokens = [self._compiled.vocabulary.rows(each) for each in tokens]
        with self._compiled.lock:
            inputs = self._cache.append(tokens, pad_to)
            total = inputs["input_ids"].size
            self._bindings.bind(inputs)
            self._bindings.bind({LOGIT_POSITIONS: positions(0, total)})
            self._compiled.run(self._request)
        logits: NDArray[np.float32] = self._logits.data.reshape(total, -1)[:, : self.vocab_size]
        hidden: NDArray[np.float32] | None = None
        if self._hidden is not None:
            hidden = self._hidden.data.reshape(total, -1)
        counts = [*map(len, tokens)]
        ends = accumulate(counts, initial=total - sum(counts))  # padding comes first
        return [
            Output(logits[begin:end].copy(), None if hidden is None else hidden[begin:end].copy())
            for begin, end in pairwise(ends)
        ]

    def rollback(self, lengths: Sequence[int]) -> None:
        """Drops all but the first tokens of each sequence; ValueError if it has fewer."""
        self._cache.rollback(lengths)
