"""Several sequences of a model with the paged cache, extended in one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
import openvino as ov

from pipeline.decoding.lm import Hidden, Output
from pipeline.decoding.sampling import Logits
from pipeline.runtime.bindings import Bindings, positions
from pipeline.runtime.compiled import Compiled
from pipeline.runtime.graph import HIDDEN, LOGIT_POSITIONS
from pipeline.runtime.kv_cache.paged import PagedKVCache
from pipeline.runtime.kv_cache.policy import Inputs
from pipeline.runtime.sequence import OVCausalLM

_MIN_TOKENS = 2  # of a pass: the matrix products of a single row use another kernel


class OVBatch:
    """Sequences of a model, which are extended together from now on.

    As in `PagedKVCache`, each token goes to the plugin as a sequence of one token, here with the
    blocks of its own sequence, and padding as a sequence without a past.

    Args:
        compiled: the model, as its sequences have it.
        sequences: their caches are paged and not quantised.

    Attributes:
        token_ids: the token of each logit; None if logit i is of token i.
    """

    def __init__(self, compiled: Compiled, sequences: Sequence[OVCausalLM]) -> None:
        self._caches = [each.cache for each in sequences if type(each.cache) is PagedKVCache]
        if len(self._caches) < len(sequences):
            raise ValueError("only sequences with a paged cache can share a forward pass")
        self._pool = self._caches[0].pool
        if self._pool.quantised:
            raise ValueError("a block that is quantised as a whole takes one token at a time")
        self._vocab_size, self.token_ids = sequences[0].vocab_size, sequences[0].token_ids
        self._compiled, self._request = compiled, compiled.model.create_infer_request()
        self._bindings = Bindings(self._request, compiled.inputs)
        self._logits = self._request.get_tensor("logits")
        self._hidden = self._request.get_tensor(HIDDEN) if compiled.hidden_width else None
        self._bound: dict[str, ov.Tensor] = {}  # of the pool
        self._inputs: Inputs = {}

    @property
    def lengths(self) -> list[int]:
        """Tokens in the cache of each sequence."""
        return [*map(len, self._caches)]

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
        counts = [*map(len, tokens)]
        padding = max(0, max(pad_to, _MIN_TOKENS) - sum(counts))
        total = padding + sum(counts)
        with self._compiled.lock:
            self._append(tokens, padding)
            self._bindings.bind(self._inputs)
            self._bindings.bind({LOGIT_POSITIONS: positions(0, total)})
            self._compiled.run(self._request)
        logits: Logits = self._logits.data.reshape(total, -1)[:, : self._vocab_size]
        hidden: Hidden | None = None
        if self._hidden is not None:
            hidden = self._hidden.data.reshape(total, -1)
        return [
            Output(logits[begin:end].copy(), None if hidden is None else hidden[begin:end].copy())
            for begin, end in pairwise(accumulate(counts, initial=padding))
        ]

    def rollback(self, lengths: Sequence[int]) -> None:
        """Drops all but the first tokens of each sequence; ValueError if it has fewer."""
        for cache, length in zip(self._caches, lengths, strict=True):
            cache.rollback(length)

    def _append(self, tokens: Sequence[Sequence[int]], padding: int) -> None:
        """Allocates slots for the new tokens of each sequence, and lays the inputs out. Padding
        comes first.
        """
        ids, past = [0] * padding, [0] * padding
        blocks: list[Sequence[int]] = [[self._pool.padding_block]] * padding
        tables = []
        for cache, each in zip(self._caches, tokens, strict=True):
            past += range(len(cache), len(cache) + len(each))
            tables.append(cache.extend(len(each)))
            ids += each
            blocks += [tables[-1]] * len(each)
        # The indices have one size as long as the longest table has.
        indices = np.full(len(blocks) * max(map(len, tables)), self._pool.padding_block, np.int32)
        flat = [block for each in blocks for block in each]
        indices[: len(flat)] = flat
        made: Inputs = {
            "input_ids": np.array(ids, np.int64),
            "position_ids": np.array(past, np.int64),
            "past_lens": np.array(past, np.int32),
            "subsequence_begins": np.arange(len(blocks) + 1, dtype=np.int32),
            "block_indices": indices,
            "block_indices_begins": np.cumsum([0, *map(len, blocks)], dtype=np.int32),
            "max_context_len": np.array(max(self.lengths), np.int32),
        }
        for name, value in made.items():
            # The same array if possible: binding another one is slow.
            if name not in self._inputs or self._inputs[name].shape != value.shape:
                self._inputs[name] = value
            self._inputs[name][...] = value
        if self._bound is not self._pool.tensors:  # others, once it has grown
            self._bound = self._pool.tensors
            for name, tensor in self._bound.items():
                self._request.set_tensor(name, tensor)
