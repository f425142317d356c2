"""The command line of all stages: `python -m lab.training [STAGE] --work WORK`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import get_args

from lab.corpus import DATA
from lab.training.command import Command, timed
from lab.training.recipe import RECIPE
from pipeline.convert import show
from pipeline.errors import UserError
from pipeline.models.pairs import Model, Weights
from pipeline.models.store import Store
from pipeline.progress import Progress

DRAFTS = ("answers", "draft", "block", "export", "acceptance")
STAGES = (
    *("base", "teacher", "target", "repetition", "instructions"),
    *DRAFTS,
    *("evaluate", "card", "digits"),
)
_DOC = """Trains a draft model and a block draft for a target, from the target's own answers, and
writes WORK/pair, which `python app.py --pair WORK/pair` races. With a STAGE, runs that one only. An
interrupted run continues with the same command."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status: 2 for an error that the user can fix."""
    parser = argparse.ArgumentParser(prog="python -m lab.training", description=_DOC)
    add = parser.add_argument
    add("stage", nargs="?", choices=STAGES, help=f"default: {', '.join(DRAFTS)}")
    add("--work", type=Path, required=True, help="folder for all that is made")
    add("--target", help="name on the hub, or folder of a checkpoint (default: WORK/target)")
    add("--instructions", type=Path, help="file of instructions to answer, one a line")
    add("--weights", choices=get_args(Weights), default=RECIPE.weights, help="of the target")
    add("--data", type=Path, default=DATA, help=f"the archives (default: {DATA})")
    add("--model", type=Path, help="GGUF file, for the stages base and teacher")
    add("--cache-dir", type=Path, help="where a target from the hub is kept")
    given = parser.parse_args(arguments)
    recipe = replace(RECIPE, weights=given.weights)
    try:
        checkpoint = _checkpoint(given.target, given.cache_dir) if given.target else None
        command = Command(
            given.work, given.data, given.model, checkpoint, given.instructions, recipe
        )
        run(command, [given.stage] if given.stage else DRAFTS)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command resumes from the last checkpoint", file=sys.stderr)
        return 130
    return 0


def run(command: Command, stages: Sequence[str] = DRAFTS) -> None:
    """Runs stages, one after the other."""
    for stage in stages:
        with timed(command.work, stage):
            import_module(f"lab.training.{stage}").main(command)


def _checkpoint(name: str, cache: Path | None) -> Path:
    """The folder of a checkpoint; fetched, if it is a name on the hub."""
    found: list[Path] = []

    def fetch() -> Iterator[Progress]:
        found.append((yield from Store(cache).checkpoint(Model(name))))

    show(fetch())
    return found[0]


if __name__ == "__main__":
    sys.exit(main())
