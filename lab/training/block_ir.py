"""The block draft as an OpenVINO IR: see `pipeline.runtime.block`.

Its layers are exported as any causal language model. Then its two further inputs are added to what
the embedding returns.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import nncf
import numpy as np
import openvino as ov
import openvino.opset13 as ops
import torch

from lab.training.draft import TARGET_IDS
from lab.training.files import replacing_folder
from pipeline.models.export import export
from pipeline.runtime.sequence import SLOTS, TARGET_HIDDEN

BIGRAM, CONFIG, XML = "bigram.npy", "config.json", "openvino_model.xml"
WEIGHTS = "model.pt"  # of the checkpoint, beside that of its layers
_EPSILON = 1e-5


def export_block(checkpoint: Path, out: Path, precision: str) -> None:
    """Writes the IR of a block draft.

    Args:
        checkpoint: its folder: the layers as a checkpoint of transformers, with `WEIGHTS` beside.
        out: the folder of the IR.
        precision: "int8", or "f32".
    """
    weights = torch.load(checkpoint / WEIGHTS, weights_only=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        plain = export(checkpoint, Path(folder) / "layers", "f32")
        model = ov.Core().read_model(plain / XML)
        add_inputs(model, weights["fuse.weight"].numpy(), weights["slots.weight"].numpy())
        if precision == "int8":
            model = nncf.compress_weights(model)
        with replacing_folder(out) as made:
            ov.save_model(model, made / XML, compress_to_fp16=False)
            bigram = np.stack([weights["before.weight"].numpy(), weights["after.weight"].numpy()])
            np.save(made / BIGRAM, bigram.astype(np.float16))
            (made / TARGET_IDS).write_bytes((checkpoint / TARGET_IDS).read_bytes())
            config: dict[str, Any] = json.loads((checkpoint / CONFIG).read_text())
            (made / CONFIG).write_text(json.dumps(config | {"bigram": BIGRAM}, indent=1))


def add_inputs(model: ov.Model, fuse: np.ndarray[Any, Any], slots: np.ndarray[Any, Any]) -> None:
    """Adds the target's hidden states and the slot to the embedding of each token.

    Args:
        model: changed in place.
        fuse: float32[width, layers * target width]; each layer's states are brought to unit root
            mean square before.
        slots: float32[slots, width].
    """
    width = fuse.shape[0]
    layers = fuse.shape[1] // width
    hidden = ops.parameter([-1, -1, fuse.shape[1]], np.float32, name=TARGET_HIDDEN)
    slot = ops.parameter([-1, -1], np.int64, name=SLOTS)
    for node, name in ((hidden, TARGET_HIDDEN), (slot, SLOTS)):
        node.output(0).set_names({name})
    unit = []
    for part in ops.split(hidden, ops.constant(2, np.int64), layers).outputs():
        power = ops.reduce_mean(ops.multiply(part, part), ops.constant([2], np.int64), True)
        unit.append(ops.divide(part, ops.sqrt(ops.add(power, np.float32(_EPSILON)))))
    fused = ops.matmul(ops.concat(unit, 2), ops.constant(fuse), False, True)
    placed = ops.gather(ops.constant(slots), slot, ops.constant(0, np.int64))
    embedded = _embedding(model)
    readers = list(embedded.get_target_inputs())
    total = ops.add(ops.add(embedded, fused), placed)
    for reader in readers:
        reader.replace_source_output(total.output(0))
    model.add_parameters([hidden, slot])
    model.validate_nodes_and_infer_types()


def _embedding(model: ov.Model) -> ov.Output:
    """What the lookup of the token ids returns."""
    readers = model.input("input_ids").get_node().output(0).get_target_inputs()
    while readers:
        node = readers.pop().get_node()
        if node.get_type_name() == "Gather" and len(node.input_value(0).get_partial_shape()) == 2:
            return node.output(0)
        if node.get_type_name() == "Convert":
            readers |= node.output(0).get_target_inputs()
    raise ValueError("no embedding of tokens")
