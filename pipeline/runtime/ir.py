"""Reads the folder of a converted model: its files, its configuration and its weights.

The files are those that optimum-intel writes. Compiling a model is `model.py`'s task.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov

from pipeline.errors import UserError
from pipeline.runtime.kv_cache.policy import Rotary
from pipeline.runtime.vocabulary import Vocabulary, read_vocabulary
from pipeline.runtime.weight_files import WHOLE, read_weights, weight_files

_XML, _CONFIG = "openvino_model.xml", "config.json"
_CONTEXT_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")
_UNLIMITED = 2048  # tokens, where positions are relative and a model names no limit
_UNPACKING = {"Convert", "Subtract", "Multiply", "Reshape"}  # between stored weights and their use
_WEIGHT_NAMES = {"u8": "INT8", "i8": "INT8", "u4": "INT4", "i4": "INT4"}


@dataclass(frozen=True, slots=True)
class BlockDraftConfig:
    """Of a block draft: see `pipeline.runtime.block`.

    Attributes:
        length: how many tokens it proposes at most.
        hidden_layers: the target's layers, from 0, whose hidden states it reads.
        bigram: the file with its bigram term.
    """

    length: int
    hidden_layers: tuple[int, ...]
    bigram: Path


@dataclass(frozen=True, slots=True)
class IRConfig:
    """Values of a model's `config.json`.

    Attributes:
        family: such as "gpt_neox".
        vocab_size: rows of its embedding.
        context_length: tokens.
        vocabulary: what its rows stand for; None if row i is token i.
        block_draft: what the configuration of a block draft says beside; None for other models.
        rotary: its rotary position embeddings; None if it has none, or of another type.
        acceptance: of a draft, the share of its tokens accepted at each position, where those
            before were, on held-out questions; empty if that was not measured.
    """

    family: str
    vocab_size: int
    context_length: int
    vocabulary: Vocabulary | None
    block_draft: BlockDraftConfig | None
    rotary: Rotary | None
    acceptance: tuple[float, ...]


def read_config(folder: Path) -> IRConfig:
    """The configuration of the model in a folder.

    Raises:
        UserError: a file of the model is missing, or the configuration is damaged, or the map of
            a trimmed vocabulary does not fit.
    """
    missing = [name for name in (_XML, _CONFIG) if not (folder / name).is_file()]
    if not weight_files(folder):
        missing.append(f"{WHOLE} or all parts of it")
    if missing:
        raise UserError("model", str(folder), f"add its {missing[0]}, or convert the model again")
    try:
        config = json.loads((folder / _CONFIG).read_text())
        lengths = [int(config[name]) for name in _CONTEXT_LENGTHS if config.get(name)]
        context_length = lengths[0] if lengths else _UNLIMITED
        family, vocab_size = str(config["model_type"]), int(config["vocab_size"])
        trimmed = str(config.get("target_ids") or "")
        unknown = int(config.get("unknown_row") or 0)
        block = _block_config(folder, config) if "block" in config else None
        rotary = _rotary(config)
        acceptance = tuple(map(_share, config.get("acceptance", ())))
    except (ValueError, KeyError, TypeError, AttributeError):
        remedy = f"replace its damaged {_CONFIG}, or convert the model again"
        raise UserError("model", str(folder), remedy) from None
    vocabulary = None
    if trimmed:
        vocabulary = read_vocabulary(folder / Path(trimmed).name, vocab_size, unknown)
    return IRConfig(family, vocab_size, context_length, vocabulary, block, rotary, acceptance)


def _share(value: float) -> float:
    if not 0 <= value <= 1:
        raise ValueError
    return float(value)


def _rotary(config: dict[str, Any]) -> Rotary | None:
    """As transformers writes it since its fifth version, or before."""
    new, old = config.get("rope_parameters") or {}, config.get("rope_scaling") or {}
    if {new.get("rope_type", "default"), old.get("rope_type", old.get("type", "default"))} != {
        "default"
    }:
        return None
    base = new.get("rope_theta") or config.get("rope_theta") or config.get("rotary_emb_base")
    share = new.get("partial_rotary_factor") or config.get("partial_rotary_factor")
    share = share or config.get("rotary_pct") or 1.0
    return Rotary(float(base), float(share)) if base else None


def _block_config(folder: Path, config: dict[str, Any]) -> BlockDraftConfig:
    layers = tuple(int(layer) for layer in config["hidden_layers"])
    return BlockDraftConfig(int(config["block"]), layers, folder / Path(config["bigram"]).name)


def read_model(folder: Path) -> ov.Model:
    """The graph and the weights in a folder.

    Raises:
        UserError: they are damaged, or not a stateful language model's.
    """
    try:
        files = weight_files(folder)
        if len(files) == 1:  # which OpenVINO maps from disk
            model = ov.Core().read_model(folder / _XML, files[0])
        else:
            model = ov.Core().read_model((folder / _XML).read_bytes(), read_weights(files))
    except RuntimeError as error:
        remedy = f"replace the damaged files or convert the model again ({last_line(error)})"
        raise UserError("model", str(folder), remedy) from None
    if not model.get_sinks() or all("logits" not in port.get_names() for port in model.outputs):
        remedy = "is no language model with a state; convert it with: python -m pipeline.convert"
        raise UserError("model", str(folder), remedy)
    return model


def count_weights(model: ov.Model) -> tuple[int, str]:
    """The number of weights in matrices, and their most common type."""
    counts: Counter[str] = Counter()
    for node in model.get_ops():
        if node.get_type_name() == "Constant" and len(node.shape) > 1 and min(node.shape) > 1:
            counts[node.get_element_type().get_type_name()] += int(np.prod(node.shape))
    return counts.total(), _WEIGHT_NAMES.get(name := counts.most_common(1)[0][0], name)


def bytes_per_pass(model: ov.Model) -> int:
    """Bytes of the weights that a forward pass reads, as the model stores them: all but the
    constants of which it only looks up rows.
    """
    constants = (node for node in model.get_ops() if node.get_type_name() == "Constant")
    return sum(node.get_byte_size() for node in constants if _users(node) != {"Gather"})


def _users(node: ov.Node) -> set[str]:
    """The types of the operations that use a weight, once it is unpacked."""
    found: set[str] = set()
    for port in node.output(0).get_target_inputs():
        user = port.get_node()
        kind = user.get_type_name()
        found |= _users(user) if kind in _UNPACKING else {kind}
    return found


def last_line(error: Exception) -> str:
    """The last line of an error of OpenVINO, without the place in its source."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1][:200]
