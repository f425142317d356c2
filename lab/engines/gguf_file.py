"""An IR of the Llama architecture as a GGUF file, so that llama.cpp runs the same weights.

4-bit matrices become Q4_1, in which both models' values are the same to within a 250th of the
distance between two levels: a group of 64 is two of llama.cpp's 32, its zero point a minimum. 8-bit
matrices become Q8_0, whose groups are smaller and symmetric: the nearest that llama.cpp has. Norms
stay float32.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from lab.engines.unpacked import Matrix, read_weights
from pipeline.errors import UserError
from pipeline.models.json_file import read_json

_BLOCK = 32  # weights that share a scale in Q4_1 and Q8_0
_KINDS = {4: gguf.GGMLQuantizationType.Q4_1, 8: gguf.GGMLQuantizationType.Q8_0}
_LAYER_NORMS = "input_layernorm", "post_attention_layernorm"
_QUERIES, _KEYS = ".q_proj.weight", ".k_proj.weight"


def write_gguf(folder: Path, path: Path) -> Path:
    """Writes the model in `folder` to the file `path`; returns `path`.

    Token ids mean the same in both. Special tokens have other texts there: by their texts llama.cpp
    would find those that end an answer, and what is compared are N tokens, whichever they are.

    Raises:
        UserError: it is not of the Llama architecture.
    """
    config = read_json(folder / "config.json")
    if config.get("model_type") != "llama":
        remedy = "is written as GGUF of the Llama architecture only"
        raise UserError("model", f"{folder.name}, {config.get('model_type')}", remedy)
    writer = gguf.GGUFWriter(path, "llama")
    _add_shape(writer, config)
    _add_tokens(writer, folder, config["vocab_size"])
    matrices, norms = read_weights(folder)
    name_of = _names(config["num_hidden_layers"])
    heads = {_QUERIES: config["num_attention_heads"], _KEYS: config["num_key_value_heads"]}
    for name, matrix in matrices.items():
        for suffix, count in heads.items():
            if name.endswith(suffix):
                matrix = _rotated(matrix, count)
        kind = _KINDS[matrix.bits]
        data = _q4_1(matrix) if matrix.bits == 4 else gguf.quants.quantize(matrix.values, kind)
        writer.add_tensor(name_of(name), data, raw_dtype=kind)
    layers = [f"model.layers.{layer}" for layer in range(config["num_hidden_layers"])]
    layer_norms = [f"{layer}.{norm}.weight" for layer in layers for norm in _LAYER_NORMS]
    ones = np.ones(config["hidden_size"], np.float32)
    for name in (*layer_norms, "model.norm.weight"):
        writer.add_tensor(name_of(name), norms.get(name, ones))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _names(layers: int) -> Callable[[str], str]:
    """From a weight's name in transformers to its name in GGUF."""
    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, layers)

    def name_of(name: str) -> str:
        found = table.get_name(name, (".weight",))
        assert found, name
        return found

    return name_of


def _add_shape(writer: Any, config: dict[str, Any]) -> None:
    heads = config["num_attention_heads"]
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_1)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    size = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_rope_dimension_count(size)
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def _add_tokens(writer: Any, folder: Path, vocab_size: int) -> None:
    """The byte-level BPE of `tokenizer.json`, SmolLM2's. Prompts come as ids: none is cut here."""
    about = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    special = [token["id"] for token in about["added_tokens"] if token["id"] < vocab_size]
    pieces = {token: piece for piece, token in about["model"]["vocab"].items()}
    pieces |= {token: f"[special {token}]" for token in special}
    kinds = dict.fromkeys(pieces, gguf.TokenType.NORMAL)
    kinds |= dict.fromkeys(special, gguf.TokenType.CONTROL)
    ids = range(vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([pieces.get(i, f"[unused {i}]") for i in ids])
    writer.add_token_types([kinds.get(i, gguf.TokenType.UNUSED) for i in ids])
    merges = about["model"]["merges"]
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    writer.add_bos_token_id(max(special))  # one that answers do not contain, as for the end
    writer.add_eos_token_id(max(special))
    writer.add_add_bos_token(False)


def _rotated(matrix: Matrix, heads: int) -> Matrix:
    """Rows of each head in llama.cpp's order: it rotates neighbours, transformers one half of a
    head with the other.
    """

    def order(part: NDArray[np.float32]) -> NDArray[np.float32]:
        rows, *rest = part.shape
        halves = part.reshape(heads, 2, rows // heads // 2, *rest)
        return halves.swapaxes(1, 2).reshape(part.shape)

    return Matrix(order(matrix.levels), order(matrix.zero_point), order(matrix.scale), matrix.bits)


def _q4_1(matrix: Matrix) -> NDArray[np.uint8]:
    """uint8[rows, bytes]: of each block its scale, its minimum, and two levels a byte."""
    rows, groups, group = matrix.levels.shape
    blocks = matrix.levels.astype(np.uint8).reshape(rows, groups, group // _BLOCK, 2, _BLOCK // 2)
    pairs = blocks[..., 0, :] | blocks[..., 1, :] << 4
    head = np.stack([matrix.scale, -matrix.zero_point * matrix.scale], -1).astype(np.float16)
    heads = np.broadcast_to(head.view(np.uint8), (*pairs.shape[:-1], 4))
    return np.concatenate([heads, pairs], -1).reshape(rows, -1)
