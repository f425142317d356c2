"""From checkpoints to IRs of the models, in f32, INT8 and INT4.

`python -m training.export` writes WORK/ir/ROLE/PRECISION, and to WORK/pair those to ship:
target and draft in INT4, the block draft in INT8.
"""

from __future__ import annotations

import shutil

from pipeline.models.export import export
from pipeline.models.pairs import Weights
from training.block import BLOCK
from training.block_ir import export_block
from training.command import Command, run
from training.draft import DRAFT
from training.target import TARGET

PRECISIONS: dict[str, tuple[Weights, ...]] = {
    TARGET: ("f32", "int8", "int4"),
    DRAFT: ("f32", "int8", "int4"),
    BLOCK: ("int8",),
}
SHIPPED: dict[str, Weights] = {TARGET: "int4", DRAFT: "int4", BLOCK: "int8"}


def main(command: Command) -> None:
    """Exports the models at every precision, and puts the shipped ones into WORK/pair."""
    for role, precisions in PRECISIONS.items():
        for precision in precisions:
            source, made = command.work / role, command.work / "ir" / role / precision
            (export_block if role == BLOCK else export)(source, made, precision)
            print(made)
        out = command.work / "pair" / role
        shutil.rmtree(out, ignore_errors=True)
        # optimum's own record of the export names the folder of the checkpoint.
        without = shutil.ignore_patterns("openvino_config.json")
        shutil.copytree(command.work / "ir" / role / SHIPPED[role], out, ignore=without)


if __name__ == "__main__":
    run(main, __doc__)
