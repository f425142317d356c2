"""The IR's own states: keys and values that OpenVINO keeps between forward passes.

A state can only grow or be replaced. So a rollback reads every state, cuts it and sets it again, as
the paper's notebook does. It is deferred until the next forward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pipeline.runtime.kv_cache.policy import CachePolicy, Inputs
from pipeline.runtime.kv_cache.precision import effective_precision

if TYPE_CHECKING:
    import openvino as ov

_TOKEN_AXIS = 2  # of a state: [batch, heads, tokens, head size]


class StatefulKVCache:
    """Rolls back by trimming the states: exact, and slow in proportion to their size."""

    def __init__(self, request: ov.InferRequest) -> None:
        self._states = request.query_state()
        self._request = request
        self._length = 0
        self._held = 0  # tokens in the states: those that count, and those not yet trimmed
        self._token_bytes = token_bytes(request)

    @property
    def nbytes(self) -> int:
        return self._held * self._token_bytes

    def __len__(self) -> int:
        return self._length

    def append(self, tokens: Sequence[int], pad_to: int = 0) -> Inputs:
        if self._length < self._held:
            self._trim()
        past, self._length = self._length, self._length + len(tokens)
        self._held = self._length
        return stateful_inputs(tokens, np.arange(past, self._length), np.ones(self._held, np.int64))

    def rollback(self, length: int) -> None:
        if not 0 <= length <= self._length:
            raise ValueError(f"cannot roll {self._length} tokens back to {length}")
        self._length = length

    def _trim(self) -> None:
        import openvino as ov

        if self._length == 0:
            self._request.reset_state()
            return
        for state in self._states:
            kept = np.split(state.state.data, [self._length], axis=_TOKEN_AXIS)[0]
            state.state = ov.Tensor(np.ascontiguousarray(kept))


def stateful_inputs(
    tokens: Sequence[int], positions: NDArray[np.int64], mask: NDArray[np.int64]
) -> Inputs:
    """The inputs of optimum-intel's stateful graph, for a batch of one.

    Args:
        tokens: n of them.
        positions: int64[n].
        mask: int64[slots in the states, the new ones included]; 0 is not attended to.
    """
    return {
        "input_ids": np.array([tokens], np.int64),
        "position_ids": positions[None],
        "attention_mask": mask[None],
        "beam_idx": np.zeros(1, np.int32),
    }


def token_bytes(request: ov.InferRequest) -> int:
    """Bytes that one token takes in all states together, at the effective precision."""
    compiled = request.get_compiled_model()
    shapes = [list(state.state.shape) for state in request.query_state()]  # of empty states
    values: int = sum(heads * head_size for _, heads, _, head_size in shapes)
    return values * int(effective_precision(compiled).bitwidth) // 8


STATEFUL = CachePolicy(
    name="stateful",
    summary="trims what is rolled back",
    about="in the model’s own states, without blocks. A rollback reads every state, cuts it and "
    "sets it again.",
    caches=lambda setup: StatefulKVCache,
    precisions=("f32", "f16", "u8"),  # to read u4 states corrupts memory (OpenVINO 2026.4.1)
)
