"""GPT-NeoX models of several sizes with random weights, for benchmarks of time alone."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.models.export import export
from pipeline.models.pairs import Weights
from pipeline.models.store import Store
from training.profiles import PROFILES, Shape

_CONTEXT = 2048


@dataclass(frozen=True, slots=True)
class Sized:
    name: str
    shape: Shape
    vocabulary: int


SHAPES = {
    sized.name: sized
    for sized in (
        Sized("draft", Shape(128, 1), 50280),
        Sized("20M", Shape(384, 8), 8192),
        Sized("60M", Shape(640, 10), 8192),
        Sized("160M", Shape(768, 12), 50280),  # Pythia-160m's
        Sized("410M", Shape(1024, 24), 50280),  # Pythia-410m's
    )
}


def model_folder(sized: Sized, weights: Weights, tokenizer: Path) -> Path:
    """The folder of the IR of that size, which is created if missing: minutes for a large one, and
    needs torch.

    Args:
        tokenizer: any `tokenizer.json`; its text is not used.
    """
    folder = Store().root / "shapes" / f"{sized.name}-{weights}"
    if not folder.is_dir():
        from training.model import new_model  # loads torch

        profile = replace(PROFILES["cpu"], vocab_size=sized.vocabulary, context=_CONTEXT)
        with tempfile.TemporaryDirectory() as made:
            new_model(sized.shape, profile).save_pretrained(made)
            shutil.copyfile(tokenizer, Path(made) / "tokenizer.json")
            export(Path(made), folder, weights)
    return folder
