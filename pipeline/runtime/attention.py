"""Fuses attention that a graph spells out: two products, a mask and a softmax become one operation.

Paged caches are made from that operation, and IRs that were exported before transformers 4.42 do
not have it. OpenVINO's own fusion does not recognise GPT-NeoX's attention of that time, which has
its causal mask in a buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import openvino as ov
import openvino.opset13 as ops

_FUSED = "ScaledDotProductAttention"
_SAME_VALUES = ("Broadcast", "Convert", "Reshape")


class _Scores(NamedTuple):
    """What a softmax is taken of.

    Attributes:
        query: float32[batch, heads, queries, size].
        key: float32[batch, heads, keys, size].
        scale: of their product.
        mask: applies to its argument what is applied to the scaled product.
    """

    query: ov.Output
    key: ov.Output
    scale: float
    mask: Callable[[ov.Node], ov.Node]


def fuse_attention(model: ov.Model) -> None:
    """Replaces softmax(scale * query @ keyᵀ, masked) @ value by one operation in each layer.

    Args:
        model: changed in place, unless it has such an operation already.
    """
    nodes = model.get_ordered_ops()
    if any(node.get_type_name() == _FUSED for node in nodes):
        return
    for node in nodes:
        if node.get_type_name() == "Softmax":
            _fuse(node)
    model.validate_nodes_and_infer_types()


def _fuse(softmax: ov.Node) -> None:
    """Leaves a softmax as it is that is not an attention's."""
    product, scores = _user(softmax), _scores(softmax.input_value(0))
    if product is None or product.get_type_name() != "MatMul" or scores is None:
        return
    value = _four_dimensions(product.input_value(1))
    if value is None:
        return
    mask = scores.mask(ops.constant(np.zeros((1, 1, 1, 1), np.float32)))
    scale = ops.constant(np.float32(scores.scale))
    attention = ops.scaled_dot_product_attention(scores.query, scores.key, value, mask, scale)
    attention.set_friendly_name(product.get_friendly_name())
    for port in product.output(0).get_target_inputs():
        port.replace_source_output(attention.output(0))


def _user(node: ov.Node) -> ov.Node | None:
    """The one operation that uses a value, past changes of its type and shape."""
    while len(ports := node.output(0).get_target_inputs()) == 1:
        node = ports.pop().get_node()
        if node.get_type_name() not in _SAME_VALUES:
            return node
    return None


def _scores(output: ov.Output) -> _Scores | None:
    """Takes the scores apart; None if they are no masked product of queries and keys."""
    node = output.get_node()
    inputs = node.input_values()
    match node.get_type_name():
        case "MatMul":
            query, key = _four_dimensions(inputs[0]), _key(node)
            return _Scores(query, key, 1.0, lambda scores: scores) if query and key else None
        case "Broadcast" | "Convert" | "Reshape":
            return _scores(inputs[0])
        case "Multiply" | "Divide" as kind:
            found, factor = _scores(inputs[0]), _scalar(inputs[1])
            if not found or factor is None:
                return None
            scale = found.scale * (factor if kind == "Multiply" else 1 / factor)
            return found._replace(scale=scale)
        case "Add":
            side = 0 if (found := _scores(inputs[0])) else 1
            found = found or _scores(inputs[1])
            return found and _then(found, lambda scores: ops.add(scores, inputs[1 - side]))
        case "Select":
            kept, _, other = inputs
            found = _scores(inputs[1])
            return found and _then(found, lambda scores: ops.select(kept, scores, other))
    return None


def _then(scores: _Scores, change: Callable[[ov.Node], ov.Node]) -> _Scores:
    return scores._replace(mask=lambda start: change(scores.mask(start)))


def _key(product: ov.Node) -> ov.Output | None:
    """The keys of a product, as they are before they are transposed."""
    output = product.input_value(1)
    if not product.get_attributes()["transpose_b"]:
        transpose = output.get_node()
        if transpose.get_type_name() != "Transpose":
            return None
        output = transpose.input_value(0)
    return _four_dimensions(output)


def _four_dimensions(output: ov.Output) -> ov.Output | None:
    """The value before batch and heads were made one dimension."""
    while output.get_partial_shape().rank.get_length() != 4:
        if output.get_node().get_type_name() not in _SAME_VALUES:
            return None
        output = output.get_node().input_value(0)
    return output


def _scalar(output: ov.Output) -> float | None:
    node = output.get_node()
    if node.get_type_name() != "Constant" or node.get_vector().size != 1:
        return None
    return float(node.get_vector()[0])
