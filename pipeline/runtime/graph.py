"""Changes to a model's graph before it is compiled: which logits and hidden states it returns."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import openvino as ov
import openvino.opset13 as ops

from pipeline.errors import UserError

LOGIT_POSITIONS = "logit_positions"  # an input, int64[logits to keep]
HIDDEN = "hidden_states"  # an output, float32[..., layers * width]

# "__module.gpt_neox.layers.3/aten::add/Add_1": the scope of the layer's module in the checkpoint.
_LAYER = re.compile(r"^__module\.(?:[\w.]+\.)?(?:layers|h|blocks)\.(\d+)[./]")


def keep_logits(model: ov.Model, token_axis: int) -> None:
    """Adds the input `LOGIT_POSITIONS`: only these tokens reach the vocabulary's matrix product.

    Args:
        model: changed in place.
        token_axis: the axis of tokens in hidden states.
    """
    projection = _projection(model)
    positions = ops.parameter([-1], np.int64, name=LOGIT_POSITIONS)
    positions.output(0).set_names({LOGIT_POSITIONS})
    kept = ops.gather(projection.input_value(0), positions, ops.constant(token_axis, np.int64))
    projection.input(0).replace_source_output(kept.output(0))
    model.add_parameters([positions])
    model.validate_nodes_and_infer_types()


def output_hidden(model: ov.Model, layers: Sequence[int]) -> int:
    """Adds the output `HIDDEN`: the residual stream after each of these decoder layers, side by
    side. After the last layer it is not yet normalised.

    Args:
        model: changed in place. Its nodes have the names that optimum-intel gives them.
        layers: their numbers, from 0.

    Returns:
        The width of `HIDDEN`, of all these layers together.

    Raises:
        UserError: the model has no such layer, or none whose output can be found.
    """
    width: int = _projection(model).input_value(0).get_partial_shape()[-1].get_length()
    streams: dict[int, ov.Output] = {}  # of each layer, what its last addition returns
    for node in model.get_ordered_ops():
        if node.get_type_name() == "Add" and (scope := _LAYER.match(node.get_friendly_name())):
            streams[int(scope[1])] = node.output(0)
    found = [layer for layer in streams if streams[layer].get_partial_shape()[-1] == width]
    for layer in layers:
        if layer not in found:
            remedy = f"choose from 0 to {max(found)}" if found else "choose another model"
            raise UserError("hidden layer", layer, remedy)
    hidden = ops.concat([streams[layer] for layer in layers], axis=-1)
    hidden.output(0).set_names({HIDDEN})
    model.add_results([ops.result(hidden)])
    model.validate_nodes_and_infer_types()
    return width * len(layers)


def _projection(model: ov.Model) -> ov.Node:
    """The matrix product from hidden states to logits."""
    node = model.output("logits").get_node().input_value(0).get_node()
    while node.get_type_name() != "MatMul":
        node = node.input_value(0).get_node()
    return node
