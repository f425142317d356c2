"""What every stage's command line shares: `--work`, `--data`, one-line errors, the time it took."""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from lab.training.corpus import DATA
from lab.training.recipe import RECIPE, Recipe
from pipeline.errors import UserError
from pipeline.models.pairs import Weights

TIMES = "stages.csv"


@dataclass(frozen=True)
class Command:
    """A stage's arguments.

    Attributes:
        work: keeps everything between the stages, outside the repository.
        data: the archives.
        model: a GGUF file to begin with.
        checkpoint: of the target that drafts are trained for; None takes the one in `work`.
        instructions: a file of instructions to answer; None takes those of the archives.
    """

    work: Path
    data: Path = DATA
    model: Path | None = None
    checkpoint: Path | None = None
    instructions: Path | None = None
    recipe: Recipe = RECIPE

    @property
    def target(self) -> Path:
        """The folder of the target's checkpoint."""
        return self.checkpoint or self.work / "target"


def new_parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser with the flags of every command."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--work", type=Path, required=True, help="folder for all that is made")
    parser.add_argument("--data", type=Path, default=DATA, help=f"default: {DATA}")
    return parser


def run(stage: Callable[[Command], None], doc: str | None) -> None:
    """Runs `stage` from the command line; exits with 2 and one line on what a user can mend."""
    parser = new_parser(doc)
    add = parser.add_argument
    add("--model", type=Path, help="GGUF file to begin with")
    add("--target", type=Path, help="folder of the target's checkpoint (default: WORK/target)")
    add("--instructions", type=Path, help="file of instructions to answer, one a line")
    add("--weights", choices=get_args(Weights), help="of the target (default: %(default)s)")
    parser.set_defaults(weights=RECIPE.weights)
    given = parser.parse_args()
    recipe = replace(RECIPE, weights=given.weights)
    with one_line_errors(), timed(given.work, Path(sys.argv[0]).stem):
        stage(
            Command(given.work, given.data, given.model, given.target, given.instructions, recipe)
        )


@contextmanager
def timed(work: Path, stage: str) -> Iterator[None]:
    """Makes the folder WORK, and adds a line to its stages.csv: the seconds that the block took,
    interrupted or not.
    """
    work.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    try:
        yield
    finally:
        path = work / TIMES
        fresh = not path.exists()
        # A full disk must not hide the error that names it.
        with suppress(OSError), path.open("a", newline="", encoding="utf-8") as lines:
            table = csv.writer(lines)
            if fresh:
                table.writerow(("stage", "seconds"))
            table.writerow((stage, round(time.monotonic() - start)))


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Ends the program with 2 and one line on what a user can mend, and with 130 on Ctrl+C."""
    try:
        yield
    except UserError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("interrupted; the same command resumes from the last checkpoint", file=sys.stderr)
        raise SystemExit(130) from None
