"""`Compiled`: what the sequences of one model share, without the model itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
import openvino as ov

from pipeline.runtime.vocabulary import Vocabulary


@dataclass(slots=True)
class Compiled:
    """A compiled model, as its sequences see it.

    Attributes:
        model: compiled.
        vocab_size: the tokens that it has logits for.
        vocabulary: which tokens these are; None if they are the first of its tokenizer's.
        prefill_chunk: the tokens of a prompt in one forward pass.
        token_axis: the axis of tokens in its hidden states.
        hidden_width: the values of the hidden states that it returns for a token; 0 without.
        rows: the inputs of a block draft, by name: the type and the shape of a token's row.
        lock: held during each forward pass, since two at a time would compete for the same cores.
    """

    model: ov.CompiledModel
    vocab_size: int
    vocabulary: Vocabulary | None
    prefill_chunk: int
    token_axis: int
    hidden_width: int
    rows: dict[str, tuple[np.dtype[Any], tuple[int, ...]]]
    lock: Lock
    inputs: frozenset[str] = field(init=False)  # their names

    def __post_init__(self) -> None:
        self.inputs = frozenset(port.any_name for port in self.model.inputs)

    def run(self, request: ov.InferRequest) -> None:
        """Runs a forward pass, while the lock is held."""
        request.start_async()
        request.wait()
