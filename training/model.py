"""The models: transformers' GPT-NeoX, made from a shape, and run on packed rows."""

from __future__ import annotations

import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

from training.packing import IGNORED, Batch
from training.profiles import Profile, Shape

HEAD_SIZE = 64


def new_model(shape: Shape, profile: Profile) -> GPTNeoXForCausalLM:
    """A freshly initialised GPT-NeoX: Dolly's arithmetic at a smaller `shape`."""
    torch.manual_seed(profile.seed)
    config = GPTNeoXConfig(
        vocab_size=profile.vocab_size,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.hidden // HEAD_SIZE,
        intermediate_size=4 * shape.hidden,
        max_position_embeddings=profile.context,
        rotary_pct=0.25,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPTNeoXForCausalLM(config)


def packed_logits(model: GPTNeoXForCausalLM, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [n, vocab] at the n positions that have a target, and the targets, int64[n].

    The head, a good part of a small model's arithmetic, runs nowhere else.
    """
    hidden = model.gpt_neox(
        input_ids=batch.tokens, attention_mask=batch.mask(), position_ids=batch.positions
    ).last_hidden_state
    wanted = batch.targets != IGNORED
    return model.embed_out(hidden[wanted]), batch.targets[wanted]
