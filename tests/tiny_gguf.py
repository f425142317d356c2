"""A GGUF file of SmolLM2's kind, tiny and with random weights."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

LAYERS, WIDTH, HEADS, KV_HEADS, FEED_FORWARD = 3, 64, 4, 2, 128
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<reponame>", "<file_sep>")
MERGES = ("t h", "th e", "Ġ the", "Ġ a", "i n")


def vocabulary() -> list[str]:
    """The special tokens, the bytes in GPT-2's stand-ins, and the merges' results."""
    from tokenizers.pre_tokenizers import ByteLevel

    joined = [merge.replace(" ", "") for merge in MERGES]
    return [*SPECIAL, *sorted(ByteLevel.alphabet()), *joined]


def write_gguf(path: Path, architecture: str = "llama", pre: str = "smollm") -> Path:
    """The file; other words than SmolLM2's make one that must be refused."""
    random = np.random.default_rng(0)
    pieces = vocabulary()
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_block_count(LAYERS)
    writer.add_context_length(512)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(100_000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(pieces))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(pieces)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(pieces) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)

    def add(name: str, *shape: int) -> None:
        weights = random.normal(size=shape) * (0.1 if len(shape) > 1 else 0) + (len(shape) == 1)
        writer.add_tensor(f"{name}.weight", weights.astype(np.float32))

    add("token_embd", len(pieces), WIDTH)
    add("output_norm", WIDTH)
    narrow = WIDTH // HEADS * KV_HEADS
    for layer in range(LAYERS):
        here = f"blk.{layer}"
        add(f"{here}.attn_norm", WIDTH)
        add(f"{here}.ffn_norm", WIDTH)
        add(f"{here}.attn_q", WIDTH, WIDTH)
        add(f"{here}.attn_k", narrow, WIDTH)
        add(f"{here}.attn_v", narrow, WIDTH)
        add(f"{here}.attn_output", WIDTH, WIDTH)
        add(f"{here}.ffn_gate", FEED_FORWARD, WIDTH)
        add(f"{here}.ffn_up", FEED_FORWARD, WIDTH)
        add(f"{here}.ffn_down", WIDTH, FEED_FORWARD)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
