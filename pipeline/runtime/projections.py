"""Merges matrix products that read the same values into one.

The query, key and value of a layer, and the gate and up projections of its MLP, are products of one
input with different weights. For one token, starting a product takes a good part of its time; the
rows of a merged product are computed as before, so no value changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import openvino as ov
import openvino.opset13 as ops

# Weights are copied to be merged, and the time of large products is that of reading them.
_MOST_BYTES = 1_000_000_000


def merge_projections(model: ov.Model, weight_bytes: int) -> None:
    """Merges all products of the same input with constant weights, compressed or not.

    Args:
        model: changed in place.
        weight_bytes: the bytes of all its weights; one of over a gigabyte is left as it is.
    """
    if weight_bytes > _MOST_BYTES:
        return
    products: defaultdict[tuple[str, int], list[ov.Node]] = defaultdict(list)
    for node in model.get_ordered_ops():
        if node.get_type_name() == "MatMul" and _rows(node) is not None:
            source = node.input_value(0)
            products[source.get_node().get_friendly_name(), source.get_index()].append(node)
    for group in products.values():
        weights = [node.input_value(1) for node in group]
        if len(group) > 1 and _alike(weights):
            _replace(group, _concatenated(weights))
    model.validate_nodes_and_infer_types()


def _rows(product: ov.Node) -> int | None:
    """Rows of its weights, if they are constants of a row for each output."""
    attributes = product.get_attributes()
    if attributes["transpose_a"] or not attributes["transpose_b"]:
        return None
    weights = product.input_value(1)
    shape = weights.get_partial_shape()
    if shape.is_dynamic or len(shape) != 2:
        return None
    rows: int = shape[0].get_length()
    return rows if _constant(weights, rows) else None


_ELEMENTWISE = ("Subtract", "Multiply")  # of compressed weights: the zero points and the scales


def _constant(value: ov.Output, rows: int) -> bool:
    """Whether it is computed from constants alone, each with a first axis of so many rows."""
    node = value.get_node()
    match node.get_type_name():
        case "Constant":
            shape = node.get_output_shape(0)
            return len(shape) > 1 and shape[0] == rows
        case "Convert" | "Reshape":
            return _constant(node.input_value(0), rows)
        case kind if kind in _ELEMENTWISE:
            return all(_constant(node.input_value(place), rows) for place in (0, 1))
    return False


def _alike(values: Sequence[ov.Output]) -> bool:
    """Whether they are computed in the same way, and differ in their rows at most."""
    nodes = [value.get_node() for value in values]
    kinds = {
        (
            node.get_type_name(),
            node.get_output_element_type(0).get_type_name(),
            tuple(node.get_output_shape(0)[1:]),
        )
        for node in nodes
    }
    if len(kinds) > 1:
        return False
    kind = nodes[0].get_type_name()
    places = () if kind == "Constant" else (0, 1) if kind in _ELEMENTWISE else (0,)
    return all(_alike([node.input_value(place) for node in nodes]) for place in places)


def _concatenated(values: Sequence[ov.Output]) -> ov.Node:
    """One value with the rows of all, computed in the same way."""
    nodes = [value.get_node() for value in values]
    shape = nodes[0].get_output_shape(0)
    shape[0] = sum(node.get_output_shape(0)[0] for node in nodes)
    kind, element_type = nodes[0].get_type_name(), nodes[0].get_output_element_type(0)
    if kind == "Constant":
        return _joined(nodes, element_type, shape)
    first = _concatenated([node.input_value(0) for node in nodes])
    if kind == "Convert":
        return ops.convert(first, element_type)
    if kind == "Reshape":
        return ops.reshape(first, ops.constant(np.array(shape, np.int64)), False)
    second = _concatenated([node.input_value(1) for node in nodes])
    return ops.subtract(first, second) if kind == "Subtract" else ops.multiply(first, second)


def _joined(constants: Sequence[ov.Node], element_type: ov.Type, shape: ov.Shape) -> ov.Node:
    """By bytes, since two 4-bit values share one; a row of weights has a whole number of them."""
    joined = ov.Tensor(element_type, shape)
    parts = [np.ascontiguousarray(node.data).reshape(-1).view(np.uint8) for node in constants]
    joined.data.reshape(-1).view(np.uint8)[:] = np.concatenate(parts)
    return ov.op.Constant(joined, shared_memory=True)


def _replace(products: Sequence[ov.Node], weights: ov.Node) -> None:
    """Puts one product in the place of several."""
    product = ops.matmul(products[0].input_value(0), weights, False, True)
    sizes = [node.get_output_partial_shape(0)[-1].get_length() for node in products]
    parts = ops.variadic_split(
        product, ops.constant(-1, np.int64), ops.constant(np.array(sizes, np.int64))
    )
    for part, node in zip(parts.outputs(), products, strict=True):
        node.output(0).replace(part)
