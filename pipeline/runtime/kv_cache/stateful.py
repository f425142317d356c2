"""The IR's own states: keys and values that OpenVINO keeps between runs.

A state can only grow or be set whole. So a rollback either trims (reads every state out, cuts it
and sets it again, as the paper's notebook does) or leaves the rejected slots where they are and
masks them. Both are lazy: nothing happens until the next run, and nothing where nothing is left.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from pipeline.runtime.kv_cache import Inputs, kv_type

Int64s = NDArray[np.int64]
_TOKEN_AXIS = 2  # of a state: [batch, heads, tokens, head size]


class StatefulKVCache:
    """Rolls back by trimming the states: exact, and slow in proportion to their size."""

    def __init__(self, request: ov.InferRequest) -> None:
        self._states = request.query_state()
        self._request = request
        self._length = 0
        self._held = 0  # tokens in the states, `_length` of which count
        self._token_bytes = _token_bytes(request)

    @property
    def nbytes(self) -> int:
        return self._held * self._token_bytes

    def __len__(self) -> int:
        return self._length

    def append(self, tokens: Sequence[int], width: int = 0) -> Inputs:
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
        if self._length == 0:
            self._request.reset_state()
            return
        for state in self._states:
            kept = np.split(state.state.data, [self._length], axis=_TOKEN_AXIS)[0]
            state.state = ov.Tensor(np.ascontiguousarray(kept))


class MaskedKVCache:
    """Rolls back by masking: the rejected slots stay, take room, and are never attended to."""

    def __init__(self, request: ov.InferRequest) -> None:
        self._request = request
        self._slots: list[int] = []  # slot of each token that counts
        self._held = 0  # slots in the states
        self._token_bytes = _token_bytes(request)

    @property
    def nbytes(self) -> int:
        return self._held * self._token_bytes

    def __len__(self) -> int:
        return len(self._slots)

    def append(self, tokens: Sequence[int], width: int = 0) -> Inputs:
        if not self._slots:
            self._request.reset_state()
            self._held = 0
        past = len(self._slots)
        self._slots.extend(range(self._held, self._held + len(tokens)))
        self._held += len(tokens)
        mask = np.zeros(self._held, np.int64)
        mask[self._slots] = 1
        return stateful_inputs(tokens, np.arange(past, len(self._slots)), mask)

    def rollback(self, length: int) -> None:
        if not 0 <= length <= len(self._slots):
            raise ValueError(f"cannot roll {len(self._slots)} tokens back to {length}")
        del self._slots[length:]


def stateful_inputs(tokens: Sequence[int], positions: Int64s, mask: Int64s) -> Inputs:
    """The inputs of optimum-intel's stateful graph, for a batch of one."""
    return {
        "input_ids": np.array([tokens], np.int64),
        "position_ids": positions[None],
        "attention_mask": mask[None],
        "beam_idx": np.zeros(1, np.int32),
    }


def _token_bytes(request: ov.InferRequest) -> int:
    """Bytes that one token takes in all states together, at the effective precision."""
    compiled = request.get_compiled_model()
    shapes = [list(state.state.shape) for state in request.query_state()]  # of empty states
    values: int = sum(heads * head_size for _, heads, _, head_size in shapes)
    return values * int(kv_type(compiled).bitwidth) // 8
