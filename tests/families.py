"""Tiny random checkpoints of several families, each as its own transformers class makes it."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

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
