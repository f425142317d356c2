"""Drafts for a target of your own. `python -m lab.training --target FOLDER --work WORK`

Has the target answer instructions, trains a draft model and a block draft on its answers, and
writes WORK/pair, which `python app.py --pair WORK/pair` races. The target's checkpoint is read with
transformers: GPT-NeoX as Dolly's, Llama, Qwen2, and families like them. An interrupted run
continues with the same command.
"""

from __future__ import annotations

from lab.training import answers, block, draft, export
from lab.training.command import Command, run


def main(command: Command) -> None:
    """Runs the stages from a target to a pair, one after the other."""
    for stage in (answers, draft, block, export):
        stage.main(command)


if __name__ == "__main__":
    run(main, __doc__)
