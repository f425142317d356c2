"""Tiny random checkpoints of several families, each as its own transformers class makes it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM, PreTrainedModel

from tests.tiny_tokenizer import write_tokenizer

CONTEXT, VOCABULARY = 256, 320
_LLAMA = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 128,
    "max_position_embeddings": CONTEXT,
}
_PLAIN = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
    "max_position_embeddings": CONTEXT,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "gpt_neox": _PLAIN,
    "gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": CONTEXT},
    "llama": _LLAMA,
    "mistral": _LLAMA | {"sliding_window": None},
    "qwen2": _PLAIN | {"num_key_value_heads": 1},
    "qwen3": _LLAMA,
    "mpt": {"d_model": 64, "n_layers": 2, "n_heads": 2, "max_seq_len": CONTEXT},
    "phi": _PLAIN,
    "bloom": {"hidden_size": 64, "n_layer": 2, "n_head": 2},
    "stablelm": _PLAIN | {"num_key_value_heads": 2},
}


@contextmanager
def spelled_out_attention() -> Iterator[None]:
    """Within the context, attention is exported as GPT-NeoX's was before transformers 4.42: as two
    products, a causal mask from a buffer, and a softmax.
    """
    interface = AttentionInterface()
    before = interface["sdpa"]
    interface.register("sdpa", _attend)
    try:
        yield
    finally:
        interface.register("sdpa", before)


def _attend(module, query, key, value, mask, scaling, **_):
    batch, heads, queries, size = query.shape
    keys = key.shape[2]
    buffer = torch.tril(torch.ones(CONTEXT, CONTEXT, dtype=torch.bool))[None, None]
    scores = torch.baddbmm(
        torch.zeros(batch * heads, queries, keys),
        query.reshape(batch * heads, queries, size),
        key.reshape(batch * heads, keys, size).transpose(1, 2),
        beta=1.0,
        alpha=scaling,
    ).view(batch, heads, queries, keys)
    least = torch.tensor(torch.finfo(torch.float32).min)
    scores = torch.where(buffer[:, :, keys - queries : keys, :keys], scores, least)
    scores = scores if mask is None else scores + mask
    weights = torch.softmax(scores, -1)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


def make_checkpoint(family: str, folder: Path, vocab_size: int = VOCABULARY) -> PreTrainedModel:
    """Writes the checkpoint, with a tokenizer of 1,024 tokens; returns the model."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        family, vocab_size=vocab_size, bos_token_id=0, eos_token_id=0, **FAMILIES[family]
    )
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for weights in model.parameters():
        if weights.dim() > 1:  # or the logits would hardly differ
            torch.nn.init.normal_(weights, std=0.2)
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return model
