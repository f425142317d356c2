"""Writes a folder that can be uploaded as a Hugging Face Space as it is.

    python -m serving.space DIR

It holds what `python app.py` reads with the embedded pair, and nothing else: no tests, no training,
no load runs, and none of the pictures of the documentation. A container serves the same folder
(`Dockerfile`).
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline.errors import UserError

ROOT = Path(__file__).resolve().parents[1]

_FILES = {  # in the folder: in the repository
    "app.py": "app.py",
    "requirements.txt": "requirements-runtime.txt",
    "LICENSE": "LICENSE",
    "NOTICE": "NOTICE",
}
_FOLDERS = ("pipeline", "lab", "ui", "assets")
_LEFT_OUT = ("__pycache__", ".png", ".svg", ".webp")  # the pictures are the documentation's
_NOT_SERVED = ("lab/engines/", "lab/load/", "lab/training/")


def write(folder: Path) -> list[Path]:
    """Writes the Space; returns its files, relative to the folder.

    Args:
        folder: a new or an empty one.

    Raises:
        UserError: the folder holds something else, or cannot be written.
    """
    try:
        held = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
        if held:
            more = f" and {len(held) - 1} more" if len(held) > 1 else ""
            remedy = f"is not empty ({held[0]}{more}); empty it, or name another folder"
            raise UserError("folder", str(folder), remedy)
        files = {**_FILES, **{name: name for name in _in_folders()}}
        for name, source in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / source, folder / name)
        (folder / "README.md").write_text(card(), encoding="utf-8")
    except OSError as error:
        remedy = f"{error.strerror or error}; name another folder"
        raise UserError("folder", str(error.filename or folder), remedy) from None
    return sorted(map(Path, (*files, "README.md")))


def card() -> str:
    """The Space's README: the front matter of the repository's, its first paragraph and its
    licences. The rest of it is of files that a Space does not have.
    """
    head, _, body = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n---\n")
    title, first, *_, licences = body.strip().split("\n\n")
    return f"{head}\n---\n\n{title}\n\n{first}\n\n{licences}\n"


def _in_folders() -> Iterator[str]:
    """The files of `_FOLDERS`, relative to the repository."""
    for folder in _FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if name.startswith(_NOT_SERVED) or {*path.parts, path.suffix} & {*_LEFT_OUT}:
                continue
            if path.is_file():
                yield name


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status: 2 for an error that the user can fix."""
    parser = argparse.ArgumentParser(
        prog="python -m serving.space", description=__doc__.splitlines()[0]
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="a new or an empty folder")
    folder = parser.parse_args(arguments).folder
    try:
        files = write(folder)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    size = sum((folder / file).stat().st_size for file in files)
    print(f"{folder}: {len(files)} files, {size / 1e6:.0f} MB. To upload it:")
    print(f"hf upload OWNER/SPACE {folder} . --repo-type space")
    return 0


if __name__ == "__main__":
    sys.exit(main())
