"""Speculative decoding as in OpenVINO's notebook of 2024, a stand-in for the paper's own code.

Reimplemented from its algorithm: stateful IRs, a fixed number of drafts, states trimmed after each
round, logits computed for all tokens. Its errors in position ids, the bonus token and the limit of
N new tokens are corrected, so that its greedy text is the same. Greedy only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import openvino as ov
from numpy.typing import NDArray


class StatefulModel:
    """A stateful IR, run with the notebook's settings."""

    def __init__(self, folder: Path) -> None:
        core = ov.Core()
        compiled = core.compile_model(
            core.read_model(folder / "openvino_model.xml"), "CPU", {"PERFORMANCE_HINT": "LATENCY"}
        )
        self._request = compiled.create_infer_request()
        self._names = {port.any_name for port in compiled.inputs}
        self.length = 0

    def reset(self) -> None:
        self._request.reset_state()
        self.length = 0

    def run(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Appends n tokens to the state; returns logits float32[n, vocab]."""
        end = self.length + len(tokens)
        inputs = {
            "input_ids": np.array([tokens], np.int64),
            "attention_mask": np.ones((1, end), np.int64),
            "position_ids": np.arange(self.length, end, dtype=np.int64)[None],
            "beam_idx": np.zeros(1, np.int32),
        }
        self._request.infer({name: inputs[name] for name in self._names})
        self.length = end
        logits: NDArray[np.float32] = self._request.get_tensor("logits").data[0]
        return logits

    def trim(self, length: int) -> None:
        """Cuts every state to `length` tokens, by a copy; tokens are the second-to-last axis."""
        if length == self.length:
            return
        for state in self._request.query_state():
            kept = state.state.data[..., :length, :]
            state.state = ov.Tensor(np.ascontiguousarray(kept))
        self.length = length


def speculate(
    target: StatefulModel,
    draft: StatefulModel,
    prompt: Sequence[int],
    count: int,
    length: int,
    on_tokens: Callable[[int], None],
) -> list[int]:
    """Continues `prompt` greedily by `count` tokens, drafting `length` in each round.

    Args:
        on_tokens: called after each round with the number of tokens so far.
    """
    target.reset()
    draft.reset()
    sequence = [*prompt, int(target.run(prompt)[-1].argmax())]
    draft.run(prompt)
    on_tokens(1)
    while (made := len(sequence) - len(prompt)) < count:
        drafted: list[int] = []
        for _ in range(min(length, count - made - 1)):
            uncached = [*sequence, *drafted][draft.length :]
            drafted.append(int(draft.run(uncached)[-1].argmax()))
        logits = target.run([*sequence[target.length :], *drafted])
        best = logits[-len(drafted) - 1 :].argmax(axis=-1).tolist()
        accepted = 0
        while accepted < len(drafted) and drafted[accepted] == best[accepted]:
            accepted += 1
        sequence += [*drafted[:accepted], best[accepted]]
        target.trim(min(target.length, len(sequence) - 1))
        draft.trim(min(draft.length, len(sequence) - 1))
        on_tokens(len(sequence) - len(prompt))
    return sequence[len(prompt) :]
