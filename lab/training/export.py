"""Stage `export`: WORK/pair, which `--pair` races, from the checkpoints.

The target and the draft model are in the precision that they were trained for, the block draft in
INT8.
"""

from __future__ import annotations

import shutil

from lab.training.block import BLOCK
from lab.training.block_ir import export_block
from lab.training.command import Command
from lab.training.draft import DRAFT
from lab.training.generation import quantised
from pipeline.models.export import export


def main(command: Command) -> None:
    """Exports the models into WORK/pair."""
    work, weights, pair = command.work, command.recipe.weights, command.work / "pair"
    target = quantised(command.target, work, weights)
    shutil.copytree(target, pair / "target", dirs_exist_ok=True)
    export(work / DRAFT, pair / "draft", weights)
    export_block(work / BLOCK, pair / "block", "int8")
    for role in ("target", "draft"):  # optimum's own record names the checkpoint's folder
        (pair / role / "openvino_config.json").unlink(missing_ok=True)
    print(f"python app.py --pair {pair}")
