"""From checkpoints to IRs. `python -m lab.training.export`

Writes WORK/ir/ROLE/PRECISION, and WORK/pair, which `--pair` races: the target and the draft model
in the precision that they were trained for, the block draft in INT8.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from lab.training.block import BLOCK
from lab.training.block_ir import export_block
from lab.training.command import Command, run
from lab.training.draft import DRAFT
from lab.training.generation import quantised
from lab.training.target import TARGET
from pipeline.models.export import export


def main(command: Command) -> None:
    """Exports the models that are shipped, and copies them into WORK/pair."""
    work, weights = command.work, command.recipe.weights
    block = work / "ir" / BLOCK / "int8"
    export_block(work / BLOCK, block, "int8")
    made = {
        TARGET: quantised(command.target, work, weights),
        DRAFT: export(work / DRAFT, work / "ir" / DRAFT / weights, weights),
        BLOCK: block,
    }
    for role, folder in made.items():
        _copy(folder, work / "pair" / role)
    print(f"python app.py --pair {work / 'pair'}")


def _copy(folder: Path, out: Path) -> None:
    shutil.rmtree(out, ignore_errors=True)
    # optimum's own record of the export names the folder of the checkpoint.
    shutil.copytree(folder, out, ignore=shutil.ignore_patterns("openvino_config.json"))


if __name__ == "__main__":
    run(main, __doc__)
