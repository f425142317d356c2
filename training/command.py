"""What every stage's command line shares: `--profile`, `--work`, `--data`, one-line errors."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import UserError
from training.corpus import DATA
from training.profiles import Profile, find_profile


@dataclass(frozen=True)
class Command:
    """A stage's arguments. `work` keeps everything between the stages, outside the repository."""

    profile: Profile
    work: Path
    data: Path


def run(stage: Callable[[Command], None], doc: str | None) -> None:
    """Runs `stage` from the command line; exits with 2 and one line on what a user can mend."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--profile", default="cpu", help="cpu (default) or gpu")
    parser.add_argument("--work", type=Path, required=True, help="folder for all that is made")
    parser.add_argument("--data", type=Path, default=DATA, help=f"default: {DATA}")
    given = parser.parse_args()
    with one_line_errors():
        given.work.mkdir(parents=True, exist_ok=True)
        stage(Command(find_profile(given.profile), given.work, given.data))


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
