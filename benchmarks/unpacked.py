"""Loads the weights of a GPT-NeoX IR into transformers, so that all engines run the same model."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import openvino as ov
import torch
from numpy.typing import NDArray
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

_LAYER_NORM_SCALE = re.compile(r"__module\.(.+)/aten::layer_norm/Multiply")
_BIAS = re.compile(r"__module\.(.+)/aten::(?:layer_norm|linear)/Add")


def unpacked(folder: Path) -> GPTNeoXForCausalLM:
    """The model in float32: quantised weights are dequantised, the others copied."""
    ir = ov.Core().read_model(folder / "openvino_model.xml")
    constants = [node for node in ir.get_ops() if node.get_type_name() == "Constant"]
    by_name = {node.get_friendly_name(): node for node in constants}
    weights: dict[str, NDArray[np.float32]] = {}
    for name, node in by_name.items():
        if name.startswith("self.") and name.endswith(".weight"):
            parts = (_values(by_name[f"{name}/{part}"]) for part in ("zero_point", "scale"))
            zero_point, scale = parts
            weight = (_values(node) - zero_point) * scale
            weights[name.removeprefix("self.")] = weight.reshape(len(weight), -1)
        for reader in node.output(0).get_target_inputs():
            user = reader.get_node().get_friendly_name()
            if scale_of := _LAYER_NORM_SCALE.fullmatch(user.removesuffix("_1")):
                weights[f"{scale_of[1]}.weight"] = _values(node).ravel()
            elif bias_of := _BIAS.fullmatch(user):
                weights[f"{bias_of[1]}.bias"] = _values(node).ravel()
    model = GPTNeoXForCausalLM(GPTNeoXConfig.from_pretrained(folder))
    state = {name: torch.from_numpy(value) for name, value in weights.items()}
    # An IR omits norms of ones and biases of zeros, with which a new model begins.
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert all(name.endswith(".bias") or "norm" in name for name in missing)
    return model.eval()


def _values(constant: ov.Node) -> NDArray[np.float32]:
    """As float32; OpenVINO unpacks 4-bit values."""
    return np.array(constant.get_data(dtype=np.float32))
