"""`OVCausalLM`: one sequence of a compiled model, with its own cache."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from pipeline.decoding.lm import Output
from pipeline.runtime.graph import HIDDEN, LOGIT_POSITIONS
from pipeline.runtime.kv_cache.policy import MAX_DECODE_TOKENS, Inputs, KVCache

if TYPE_CHECKING:
    from pipeline.runtime.model import OVModel


class OVCausalLM:
    """One sequence of a model, returned by `OVModel.sequence`.

    The small inputs are the cache's own arrays, which it writes in place.

    Attributes:
        vocab_size: of its logits.
        token_ids: what they stand for; None if logit i is of token i.
        cache: its keys and values.
    """

    def __init__(
        self, model: OVModel, request: ov.InferRequest, cache: KVCache, vocab_size: int
    ) -> None:
        self.vocab_size, self.cache = vocab_size, cache
        self._model, self._request = model, request
        vocabulary = model.vocabulary
        self.token_ids = vocabulary.token_ids[:vocab_size] if vocabulary else None
        self._bound: Inputs = {}
        self._logits = request.get_tensor("logits")
        self._hidden = request.get_tensor(HIDDEN) if model.hidden_width else None

    @property
    def kv_bytes(self) -> int:
        return self.cache.nbytes

    def __len__(self) -> int:
        return len(self.cache)

    def forward(self, tokens: Sequence[int], logits_to_keep: int, pad_to: int = 0) -> Output:
        """Appends `tokens` and runs the model over them, a long prompt chunk by chunk; without
        tokens, nothing runs.

        For a pass of another size than the last, the plugin prepares every node again. Padding to
        `pad_to` tokens, where the cache supports it, gives passes the same size.

        Returns:
            logits float32[logits_to_keep, vocab] and, if the model was compiled to return them,
            hidden states; both are copies.
        """
        chunk, hidden = self._model.prefill_chunk, []
        while len(tokens) > chunk and len(tokens) - chunk >= logits_to_keep:
            hidden.append(self._forward(tokens[:chunk], 0, 0).hidden)
            tokens = tokens[chunk:]
        output = self._forward(tokens, logits_to_keep, pad_to)
        if not hidden or output.hidden is None:
            return output
        return Output(output.logits, np.concatenate([*hidden, output.hidden]))

    def rollback(self, length: int) -> None:
        self.cache.rollback(length)

    def time_forward(self, count: int) -> float:
        """Seconds of a forward pass of `count` tokens, which are rolled back. The time does not
        depend on the tokens.
        """
        length = len(self)
        start = perf_counter()
        self.forward([0] * count, logits_to_keep=min(count, MAX_DECODE_TOKENS))
        seconds = perf_counter() - start
        self.rollback(length)
        return seconds

    def _forward(self, tokens: Sequence[int], logits_to_keep: int, pad_to: int) -> Output:
        if not tokens:
            return self._output(0, 0, 0)
        if self._model.vocabulary:
            tokens = self._model.vocabulary.rows(tokens)
        with self._model.lock:
            inputs = self.cache.append(tokens, pad_to)
            end = inputs["input_ids"].size
            # The same in every pass of a size, so that the output projection has one size too.
            kept = min(max(logits_to_keep, pad_to), end) if logits_to_keep else 0
            self._bind(inputs)
            self._bind({LOGIT_POSITIONS: _last_positions(end, kept)})
            self._request.start_async()
            self._request.wait()
            self._model.forward_passes += 1
        return self._output(len(tokens), kept, logits_to_keep)

    def _output(self, count: int, kept: int, logits_to_keep: int) -> Output:
        """Copies of the request's last rows; the rows before them belong to padding."""
        hidden = None
        if self._hidden is not None:
            states = self._hidden.data.reshape(-1, self._model.hidden_width)
            hidden = states[len(states) - count :].copy()
        if not logits_to_keep:
            return Output(np.empty((0, self.vocab_size), np.float32), hidden)
        logits: NDArray[np.float32] = self._logits.data.reshape(kept, -1)
        return Output(logits[kept - logits_to_keep :, : self.vocab_size].copy(), hidden)

    def _bind(self, inputs: Inputs) -> None:
        """Binds each array as the request's tensor, without a copy, unless it is bound already.
        Inputs that the model lacks, such as positions, are skipped.
        """
        for name, value in inputs.items():
            if self._bound.get(name) is not value and name in self._model.inputs:
                self._request.set_tensor(name, ov.Tensor(value, shared_memory=True))
                self._bound[name] = value


@cache
def _last_positions(end: int, count: int) -> NDArray[np.int64]:
    return np.arange(end - count, end)
