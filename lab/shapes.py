"""GPT-NeoX models of several sizes with random weights, for measurements of time alone."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from lab.result import Result
from lab.study import Setup
from pipeline.models.export import export
from pipeline.models.pairs import Weights, folder_suffix

_CONTEXT, _HEAD_SIZE = 2048, 64
_TRIMMED, _TARGET_IDS = 4096, "target_ids.json"  # rows of a draft's vocabulary, and their tokens
_WIDTH_PER_LAYER = 128  # of a draft: half as deep for its width as Pythia is
_WIDEST = 2048


@dataclass(frozen=True, slots=True)
class Sized:
    """A GPT-NeoX model, whose MLP is four times the width.

    Attributes:
        trimmed: a draft's; its vocabulary is the first tokens of a larger one.
        head_size: channels of a head.
    """

    name: str
    hidden: int
    layers: int
    vocabulary: int
    trimmed: bool = False
    head_size: int = _HEAD_SIZE

    @property
    def parameters(self) -> int:
        """Weights in matrices."""
        return 2 * self.vocabulary * self.hidden + 12 * self.layers * self.hidden**2


SHAPES = {
    sized.name: sized
    for sized in (
        Sized("draft", 128, 1, 50280),
        Sized("20M", 384, 8, 8192),
        Sized("60M", 640, 10, 8192),
        Sized("135M", 576, 30, 12288),  # SmolLM2-135M's width and depth
        Sized("160M", 768, 12, 50280),  # Pythia-160m's
        Sized("410M", 1024, 24, 50280),  # Pythia-410m's
        Sized("3B", 2560, 32, 50280),  # Dolly v2 3B's, but for the size of its heads
    )
}


def draft_of(parameters: float) -> Sized:
    """A shallow draft with a trimmed vocabulary and about so many weights: within a tenth from 1.4
    million on.
    """
    made = []
    for hidden in range(_HEAD_SIZE, _WIDEST + 1, _HEAD_SIZE):
        layers = round((parameters - 2 * _TRIMMED * hidden) / (12 * hidden**2))
        if layers > 0:
            name = f"draft-{hidden}x{layers}"
            made.append(Sized(name, hidden, layers, _TRIMMED, trimmed=True))
    return min(made, key=lambda draft: abs(draft.layers - draft.hidden / _WIDTH_PER_LAYER))


def random_model(
    setup: Setup, sized: Sized, weights: Weights = "int8"
) -> Generator[Result, None, Path]:
    """Returns the folder of the IR of that size, which is created if missing: minutes for a large
    one, and needs torch. Its tokenizer is the target's, whose text is not used.
    """
    store = setup.choice.store
    folder = store.root / "shapes" / f"{sized.name}-{folder_suffix(weights)}"
    if not folder.is_dir():
        yield Result(doing=f"making {sized.name}, random weights")
        with tempfile.TemporaryDirectory() as made:
            save_checkpoint(sized, Path(made))
            tokenizer = store.folder(setup.choice.pair.target) / "tokenizer.json"
            shutil.copyfile(tokenizer, Path(made) / "tokenizer.json")
            if sized.trimmed:
                (Path(made) / _TARGET_IDS).write_text(json.dumps([*range(sized.vocabulary)]))
            export(Path(made), folder, weights)
    return folder


def save_checkpoint(sized: Sized, folder: Path) -> None:
    """Writes the model with random weights, in shards, without a tokenizer."""
    import torch
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    config = GPTNeoXConfig(
        vocab_size=sized.vocabulary,
        hidden_size=sized.hidden,
        num_hidden_layers=sized.layers,
        num_attention_heads=sized.hidden // sized.head_size,
        intermediate_size=4 * sized.hidden,
        max_position_embeddings=_CONTEXT,
        rotary_pct=0.25,
        bos_token_id=0,
        eos_token_id=0,
        **({"target_ids": _TARGET_IDS} if sized.trimmed else {}),
    )
    torch.manual_seed(0)
    GPTNeoXForCausalLM(config).save_pretrained(folder, max_shard_size="2GB")
