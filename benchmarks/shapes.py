"""GPT-NeoX models of several sizes with random weights: their time is real, their text is not."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pipeline.convert import Weights, convert
from pipeline.pairs import CONVERTED

_HEAD = 64


@dataclass(frozen=True, slots=True)
class Shape:
    name: str
    hidden: int
    layers: int
    vocabulary: int


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("20M", 384, 8, 8192),
        Shape("60M", 640, 10, 8192),
        Shape("160M", 768, 12, 50280),  # Pythia-160m's
        Shape("410M", 1024, 24, 50280),  # Pythia-410m's
    )
}


def model_folder(shape: Shape, weights: Weights, tokenizer: Path) -> Path:
    """The shape's IR, made if it is not there: some minutes for a large one. Needs torch."""
    folder = CONVERTED / "shapes" / f"{shape.name}-{weights}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory() as made:
            _save(shape, tokenizer, Path(made))
            convert(made, folder, weights)
    return folder


def _save(shape: Shape, tokenizer: Path, folder: Path) -> None:
    """As transformers saves it, with any tokenizer: nothing reads its text."""
    import torch
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    torch.manual_seed(0)
    config = GPTNeoXConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.hidden // _HEAD,
        intermediate_size=4 * shape.hidden,
        max_position_embeddings=2048,
        rotary_pct=0.25,
    )
    GPTNeoXForCausalLM(config).save_pretrained(folder)
    shutil.copyfile(tokenizer, folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"})
    )
