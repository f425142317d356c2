"""A wrapper around a model whose forward passes a benchmark times or changes."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.decoding.lm import CausalLM, Output


class WrappedLM:
    """Delegates to the model; subclasses override `forward`."""

    def __init__(self, model: CausalLM) -> None:
        self._model = model
        self.vocab_size, self.token_ids = model.vocab_size, model.token_ids

    @property
    def kv_bytes(self) -> int:
        return self._model.kv_bytes

    def __len__(self) -> int:
        return len(self._model)

    def forward(self, tokens: Sequence[int], logits_to_keep: int, pad_to: int = 0) -> Output:
        return self._model.forward(tokens, logits_to_keep, pad_to)

    def rollback(self, length: int) -> None:
        self._model.rollback(length)
