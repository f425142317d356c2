"""Stage `export`: WORK/pair, which `--pair` races, from the checkpoints.

The target and the draft model are in the precision that they were trained for, the block draft in
INT8.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from lab.training.block import BLOCK
from lab.training.block_ir import export_block
from lab.training.command import Command
from lab.training.draft import DRAFT
from lab.training.generation import quantised
from pipeline.models.export import export
from pipeline.runtime.weight_files import PARTS, WHOLE, part_name

_LARGEST = 36_000_000  # bytes of a file, so that hosts of code take it


def main(command: Command) -> None:
    """Exports the models into WORK/pair."""
    work, weights, pair = command.work, command.recipe.weights, command.work / "pair"
    target = quantised(command.target, work, weights)
    shutil.copytree(target, pair / "target", dirs_exist_ok=True)
    export(work / DRAFT, pair / "draft", weights)
    export_block(work / BLOCK, pair / "block", "int8")
    for role in ("target", "draft"):  # optimum's own record names the checkpoint's folder
        (pair / role / "openvino_config.json").unlink(missing_ok=True)
    for role in ("target", "draft", "block"):
        split_weights(pair / role, _LARGEST)
    print(f"python app.py --pair {pair}")


def split_weights(folder: Path, most: int) -> None:
    """Makes parts of at most `most` bytes of the weights in a folder, if they are more; those of an
    earlier export go.
    """
    for part in folder.glob(PARTS):
        part.unlink()
    whole = folder / WHOLE
    weights = memoryview(whole.read_bytes())
    count = -(-len(weights) // most)
    if count < 2:
        return
    for place in range(count):
        content = weights[place * most : (place + 1) * most]
        (folder / part_name(place, count)).write_bytes(content)
    whole.unlink()
