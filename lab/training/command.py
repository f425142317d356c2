"""What a stage is given, and the time that it took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from lab.corpus import DATA
from lab.training.files import add_line
from lab.training.recipe import RECIPE, Recipe
from pipeline.errors import UserError

TIMES = "stages.jsonl"


@dataclass(frozen=True)
class Command:
    """A stage's arguments."""

    work: Path  # keeps everything between the stages, outside the repository
    data: Path = DATA  # the archives
    model: Path | None = None  # a GGUF file to begin with
    checkpoint: Path | None = None  # of the target; None takes the one in `work`
    instructions: Path | None = None  # to answer; None takes those of the archives
    recipe: Recipe = RECIPE

    @property
    def target(self) -> Path:
        """The folder of the target's checkpoint."""
        return self.checkpoint or self.work / "target"


@contextmanager
def timed(work: Path, stage: str) -> Iterator[None]:
    """Makes the folder WORK, and adds a line to its stages.jsonl: the seconds that the block took,
    interrupted or not.
    """
    work.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    try:
        yield
    finally:
        with suppress(UserError):  # a full disk must not hide the error that names it
            add_line(work / TIMES, {"stage": stage, "seconds": round(time.monotonic() - start)})
