"""`OVBatch`: several sequences of a compiled model, extended in one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from pipeline.decoding.lm import Output
from pipeline.runtime.bindings import Bindings, positions
from pipeline.runtime.graph import HIDDEN, LOGIT_POSITIONS
from pipeline.runtime.kv_cache.paged import PagedKVCache
from pipeline.runtime.kv_cache.paged_batch import PagedBatch
from pipeline.runtime.sequence import OVCausalLM

if TYPE_CHECKING:
    from pipeline.runtime.model import OVModel


class OVBatch:
    """Sequences of a model with the paged cache, returned by `OVModel.batch`.

    Attributes:
        vocab_size: of their logits.
        token_ids: what they stand for; None if logit i is of token i.
    """

    def __init__(
        self, model: OVModel, request: ov.InferRequest, sequences: Sequence[OVCausalLM]
    ) -> None:
        self.vocab_size, self.token_ids = sequences[0].vocab_size, sequences[0].token_ids
        caches = [each.cache for each in sequences if type(each.cache) is PagedKVCache]
        if len(caches) < len(sequences):
            raise ValueError("only sequences with a paged cache can share a forward pass")
        self._model, self._request, self._cache = model, request, PagedBatch(request, caches)
        self._bindings = Bindings(request, model.inputs)
        self._logits = request.get_tensor("logits")
        self._hidden = request.get_tensor(HIDDEN) if model.hidden_width else None

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
        if self._model.vocabulary:
            tokens = [self._model.vocabulary.rows(each) for each in tokens]
        with self._model.lock:
            inputs = self._cache.append(tokens, pad_to)
            total = inputs["input_ids"].size
            self._bindings.bind(inputs)
            self._bindings.bind({LOGIT_POSITIONS: positions(0, total)})
            self._request.start_async()
            self._request.wait()
            self._model.forward_passes += 1
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
