"""`OVCausalLM`: one sequence of a compiled model, with its own cache."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from pipeline.decoding.lm import Hidden, Output
from pipeline.runtime.bindings import Arrays, Bindings, positions
from pipeline.runtime.compiled import Compiled
from pipeline.runtime.graph import HIDDEN, LOGIT_POSITIONS
from pipeline.runtime.kv_cache.policy import MAX_DECODE_TOKENS, KVCache

_NO_ROWS: Arrays = {}
TARGET_HIDDEN, SLOTS = FURTHER_INPUTS = ("target_hidden", "slots")  # of a block draft


class OVCausalLM:
    """One sequence of a model, returned by `OVModel.sequence`.

    The small inputs are the cache's own arrays, which it writes in place.

    Args:
        compiled: the model.
        request: its own.
        cache: its own, of the same request.
        vocab_size: how many logits it returns for a token.
        prefix_hidden: the hidden states of a shared prefix, which the cache already holds.

    Attributes:
        token_ids: the token of each logit; None if logit i is of token i.
    """

    def __init__(
        self,
        compiled: Compiled,
        request: ov.InferRequest,
        cache: KVCache,
        vocab_size: int,
        prefix_hidden: Hidden | None = None,
    ) -> None:
        self.vocab_size, self.cache = vocab_size, cache
        self._compiled, self._request = compiled, request
        vocabulary = compiled.vocabulary
        self.token_ids = vocabulary.token_ids[:vocab_size] if vocabulary else None
        self._bindings = Bindings(request, compiled.inputs)
        self._logits = request.get_tensor("logits")
        self._hidden = request.get_tensor(HIDDEN) if compiled.hidden_width else None
        self._prefix_hidden = prefix_hidden

    @property
    def kv_bytes(self) -> int:
        return self.cache.nbytes

    def __len__(self) -> int:
        return len(self.cache)

    def forward(
        self,
        tokens: Sequence[int],
        logits_to_keep: int,
        pad_to: int = 0,
        rows: Arrays = _NO_ROWS,
    ) -> Output:
        """Appends `tokens` and runs the model over them, a long prompt chunk by chunk; without
        tokens, nothing runs.

        For a pass of another size than the last, the plugin prepares every node again. Padding to
        `pad_to` tokens, where the cache supports it, gives passes the same size.

        Args:
            rows: the model's further inputs by name, each with a row for every token of the
                sequence, those in the cache included.

        Returns:
            logits float32[logits_to_keep, vocab] and, if the model was compiled to return them,
            hidden states; both are copies. The first pass after a shared prefix returns those of
            the prefix too.
        """
        chunk, hidden = self._compiled.prefill_chunk, list[Hidden | None]()
        while len(tokens) > chunk and len(tokens) - chunk >= logits_to_keep:
            hidden.append(self._forward(tokens[:chunk], 0, 0, rows).hidden)
            tokens = tokens[chunk:]
        output = self._forward(tokens, logits_to_keep, pad_to, rows)
        if self._prefix_hidden is not None:
            hidden, self._prefix_hidden = [self._prefix_hidden, *hidden], None
        if not hidden or output.hidden is None:
            return output
        return Output(output.logits, np.concatenate([*hidden, output.hidden]))

    def row_of(self, token: int) -> int:
        """The row of the vocabulary that a token is read as."""
        vocabulary = self._compiled.vocabulary
        return vocabulary.rows([token])[0] if vocabulary else token

    def rollback(self, length: int) -> None:
        self.cache.rollback(length)

    def time_forward(self, count: int) -> float:
        """Seconds of a forward pass of `count` tokens, at most a prefill chunk, which are rolled
        back. The time does not depend on the tokens. Waiting for another pass does not count.
        """
        length, logits_to_keep = len(self), min(count, MAX_DECODE_TOKENS)
        further = self._compiled.rows.items()
        total = length + count
        rows = {name: np.zeros((total, *shape), kind) for name, (kind, shape) in further}
        with self._compiled.lock:
            start = perf_counter()
            kept = self._run([0] * count, logits_to_keep, 0, rows)
        self._output(count, kept, logits_to_keep)
        seconds = perf_counter() - start
        self.rollback(length)
        return seconds

    def _forward(
        self, tokens: Sequence[int], logits_to_keep: int, pad_to: int, rows: Arrays
    ) -> Output:
        if not tokens:
            return self._output(0, 0, 0)
        with self._compiled.lock:
            kept = self._run(tokens, logits_to_keep, pad_to, rows)
        return self._output(len(tokens), kept, logits_to_keep)

    def _run(self, tokens: Sequence[int], logits_to_keep: int, pad_to: int, rows: Arrays) -> int:
        """Runs the model, whose lock is held; returns how many rows of logits it computed."""
        if self._compiled.vocabulary:
            tokens = self._compiled.vocabulary.rows(tokens)
        inputs = self.cache.append(tokens, pad_to)
        end = inputs["input_ids"].size
        # The same in every pass of a size, so that the output projection has one size too; and two
        # where there are two, since a product of one row may use another kernel, as it does on CPUs
        # without AVX-512. A block draft's slots always need as many.
        at_least = 0 if rows else max(pad_to, 2)
        kept = min(max(logits_to_keep, at_least), end) if logits_to_keep else 0
        self._bindings.bind(inputs)
        fed = {name: array[: len(self)] for name, array in rows.items()}
        self._bindings.bind({name: self._padded(name, array, end) for name, array in fed.items()})
        self._bindings.bind({LOGIT_POSITIONS: positions(end - kept, end)})
        self._compiled.run(self._request)
        return kept

    def _output(self, count: int, kept: int, logits_to_keep: int) -> Output:
        """Copies of the request's last rows; the rows before them belong to padding."""
        hidden = None
        if self._hidden is not None:
            states = self._hidden.data.reshape(-1, self._compiled.hidden_width)
            hidden = states[len(states) - count :].copy()
        if not logits_to_keep:
            return Output(np.empty((0, self.vocab_size), np.float32), hidden)
        logits: NDArray[np.float32] = self._logits.data.reshape(kept, -1)
        return Output(logits[kept - logits_to_keep :, : self.vocab_size].copy(), hidden)

    def _padded(self, name: str, rows: NDArray[Any], count: int) -> NDArray[Any]:
        """The last `count` rows, as the model takes them; zeros where there are fewer. The same
        array if possible: binding another one is slow.
        """
        axis, shape = 1 - self._compiled.token_axis, (count, *rows.shape[1:])
        bound = self._bindings.bound.get(name)
        if bound is None or bound.squeeze(axis).shape != shape:
            bound = np.expand_dims(np.empty(shape, rows.dtype), axis)
        padded, last = bound.squeeze(axis), rows[-count:]
        padded[: count - len(last)] = 0
        padded[count - len(last) :] = last
        return bound
