"""From weights to IRs: a transformers folder, then f32, INT8 and INT4. `python -m training.export`

The INT8 IRs are the pair that is shipped; f32 and INT4 stay in the work folder, for evaluation.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import get_args

import torch

from pipeline.errors import UserError
from pipeline.models.export import export
from pipeline.models.pairs import Weights
from training import distil, train
from training.command import Command, run
from training.model import new_model
from training.profiles import Profile, Shape
from training.tokenizer import END_OF_TEXT, FILE


def save_transformers(weights: Path, shape: Shape, profile: Profile, folder: Path) -> None:
    """The model as transformers saves it, the tokenizer of its work folder beside it."""
    if not weights.exists():
        raise UserError("weights", str(weights), "are not there; run the stage that makes them")
    model = new_model(shape, profile)
    model.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    model.save_pretrained(folder)
    shutil.copyfile(weights.parent / FILE, folder / FILE)
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": profile.context,
        "clean_up_tokenization_spaces": False,
        **dict.fromkeys(("bos_token", "eos_token", "unk_token"), END_OF_TEXT),
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(about, indent=2) + "\n")


def main(command: Command) -> None:
    """Exports target and draft at every precision."""
    profile, work = command.profile, command.work
    for role, weights, shape in (
        ("target", train.WEIGHTS, profile.target),
        (profile.draft_phase.name, distil.weights_file(profile), profile.draft),
    ):
        folder = work / "transformers" / role
        save_transformers(work / weights, shape, profile, folder)
        for precision in get_args(Weights):
            print(export(folder, work / precision / role, precision))


if __name__ == "__main__":
    run(main, __doc__)
