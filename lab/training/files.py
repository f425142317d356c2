"""Files that an interruption leaves whole: replaced at once, or grown line by line."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.errors import UserError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path that is renamed to `path` when the block has succeeded.

    Raises:
        UserError: the disk is full; `path` is as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield temporary
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:  # torch reports a failed write as RuntimeError
        full = getattr(error, "errno", None) == errno.ENOSPC or "write" in str(error)
        if not full:
            raise
        raise UserError("disk", str(path), "is full or not writable; nothing was lost") from None
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary)
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Like `replacing`, for a folder."""
    with replacing(path) as temporary:
        temporary.mkdir()
        yield temporary
        if path.exists():
            shutil.rmtree(path)


def read_json(path: Path, remedy: str) -> Any:
    """What is in a file; raises UserError with the remedy if it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UserError("file", path.name, f"is missing or damaged; {remedy}") from None


def write_json(path: Path, value: Any) -> None:
    """Replaces `path`."""
    with replacing(path) as temporary:
        text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
        temporary.write_text(text, encoding="utf-8")


def digest(*files: Path) -> str:
    """Of the names and the contents of files."""
    found = hashlib.blake2b(digest_size=16)
    for file in files:
        with file.open("rb") as content:
            found.update(file.name.encode())
            found.update(hashlib.file_digest(content, "blake2b").digest())
    return found.hexdigest()


def add_line(path: Path, value: Any) -> None:
    """Appends a line of JSON.

    Raises:
        UserError: the disk is full.
    """
    try:
        with path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(value) + "\n")
    except OSError as error:
        remedy = f"could not be written ({error.strerror}); what it held is kept"
        raise UserError("file", str(path), remedy) from None


def read_lines(path: Path) -> list[Any]:
    """The values of a file of JSON lines; none if it is not there. A last line that an interruption
    cut short is taken off the file.

    Raises:
        UserError: another line is damaged.
    """
    if not path.is_file():
        return []
    whole, _, cut = path.read_text(encoding="utf-8").rpartition("\n")
    if cut:
        path.write_text(f"{whole}\n" if whole else "", encoding="utf-8")
    values = []
    for number, line in enumerate(whole.split("\n") if whole else [], 1):
        try:
            values.append(json.loads(line))
        except ValueError:
            where, remedy = f"{path.name}, line {number}", "is damaged; delete the line"
            raise UserError("file", where, remedy) from None
    return values
