"""A GGUF file of Qwen2.5's kind, tiny and with random weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np

LAYERS, WIDTH, HEADS, KV_HEADS, FEED_FORWARD = 3, 64, 4, 2, 128
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("t h", "th e", "Ġ the", "Ġ a", "i n", "o n")


def vocabulary() -> list[str]:
    """The bytes in GPT-2's stand-ins, the merges' results, and the special tokens."""
    from tokenizers.pre_tokenizers import ByteLevel

    joined = [merge.replace(" ", "") for merge in MERGES]
    return [*sorted(ByteLevel.alphabet()), *joined, *SPECIAL]


def write_gguf(path: Path, architecture: str = "qwen2", pieces: Sequence[str] = ()) -> Path:
    """The file; another architecture makes one that transformers does not read.

    Args:
        pieces: its tokens, if not those of `vocabulary`.
    """
    random = np.random.default_rng(0)
    pieces = [*pieces] or vocabulary()
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_block_count(LAYERS)
    writer.add_context_length(512)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(100_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(pieces))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(pieces)
    writer.add_token_types([1] * (len(pieces) - len(SPECIAL)) + [3] * len(SPECIAL))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(len(pieces) - 3)
    writer.add_eos_token_id(len(pieces) - 1)

    def add(name: str, *shape: int) -> None:
        plain = name.endswith("norm.weight")
        weights = np.ones(shape) if plain else random.normal(size=shape) * 0.1
        writer.add_tensor(name, weights.astype(np.float32))

    add("token_embd.weight", len(pieces), WIDTH)
    add("output.weight", len(pieces), WIDTH)
    add("output_norm.weight", WIDTH)
    narrow = WIDTH // HEADS * KV_HEADS
    for layer in range(LAYERS):
        here = f"blk.{layer}"
        add(f"{here}.attn_norm.weight", WIDTH)
        add(f"{here}.ffn_norm.weight", WIDTH)
        for name, size in (("q", WIDTH), ("k", narrow), ("v", narrow)):
            add(f"{here}.attn_{name}.weight", size, WIDTH)
            add(f"{here}.attn_{name}.bias", size)
        add(f"{here}.attn_output.weight", WIDTH, WIDTH)
        add(f"{here}.ffn_gate.weight", FEED_FORWARD, WIDTH)
        add(f"{here}.ffn_up.weight", FEED_FORWARD, WIDTH)
        add(f"{here}.ffn_down.weight", WIDTH, FEED_FORWARD)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
