"""Reads the weights of an IR, so that engines which read no IR run the same model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from pipeline.runtime.ir import read_model

_NORM_SCALE = re.compile(r"__module\.(.+)/aten::(?:layer_norm|mul)/Multiply(?:_1)?")
_BIAS = re.compile(r"__module\.(.+)/aten::(?:layer_norm|linear)/Add")


@dataclass(frozen=True, slots=True)
class Matrix:
    """Quantised weights as NNCF stores them: (levels - zero point) × scale.

    Attributes:
        levels: float32[rows, groups, group], whole numbers from 0.
        zero_point, scale: float32[rows, groups, 1].
        bits: 4 or 8.
    """

    levels: NDArray[np.float32]
    zero_point: NDArray[np.float32]
    scale: NDArray[np.float32]
    bits: int

    @property
    def values(self) -> NDArray[np.float32]:
        """float32[rows, columns]."""
        values = (self.levels - self.zero_point) * self.scale
        return values.reshape(len(values), -1)


def read_weights(folder: Path) -> tuple[dict[str, Matrix], dict[str, NDArray[np.float32]]]:
    """The matrices of an INT8 or INT4 IR, and its norms and biases, by their names in torch.

    An IR omits norms of ones and biases of zeros.
    """
    ir = read_model(folder)
    constants = [node for node in ir.get_ops() if node.get_type_name() == "Constant"]
    by_name = {node.get_friendly_name(): node for node in constants}
    matrices: dict[str, Matrix] = {}
    vectors: dict[str, NDArray[np.float32]] = {}
    for name, node in by_name.items():
        if name.startswith("self.") and name.endswith(".weight"):
            bits = int(node.get_element_type().bitwidth)
            levels, scale = _grouped(node), _grouped(by_name[f"{name}/scale"])
            if f"{name}/zero_point" in by_name:
                zero_point = _grouped(by_name[f"{name}/zero_point"])
            else:  # symmetric: levels are signed, around zero
                zero_point = np.full_like(scale, 2 ** (bits - 1))
                levels += 2 ** (bits - 1)
            matrices[name.removeprefix("self.")] = Matrix(levels, zero_point, scale, bits)
        for reader in node.output(0).get_target_inputs():
            user = reader.get_node().get_friendly_name()
            if (scale_of := _NORM_SCALE.fullmatch(user)) and "norm" in scale_of[1]:
                vectors[f"{scale_of[1]}.weight"] = _values(node).ravel()
            elif bias_of := _BIAS.fullmatch(user):
                vectors[f"{bias_of[1]}.bias"] = _values(node).ravel()
    return matrices, vectors


def unpacked(folder: Path) -> Any:
    """The model in float32: quantised weights are dequantised, the others copied."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    matrices, vectors = read_weights(folder)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    weights = {name: matrix.values for name, matrix in matrices.items()} | vectors
    state = {name: torch.from_numpy(value) for name, value in weights.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    # A new model begins with what the IR omits; a tied head is the embedding.
    tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    assert all(name.endswith(".bias") or "norm" in name for name in {*missing} - tied)
    return model.eval()


def _grouped(constant: ov.Node) -> NDArray[np.float32]:
    """[rows, groups, group]; of a matrix without groups, a row is one."""
    values = _values(constant)
    return values if values.ndim == 3 else values[:, None]


def _values(constant: ov.Node) -> NDArray[np.float32]:
    """As float32; OpenVINO unpacks 4-bit values."""
    return np.array(constant.get_data(dtype=np.float32))
