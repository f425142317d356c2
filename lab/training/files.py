"""Atomic writes: a file or folder is either complete or absent."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


def whole_lines(path: Path) -> list[str]:
    """The lines of a text that grows by lines, none if it is not there. A last line that an
    interruption cut short is taken off the file.
    """
    if not path.is_file():
        return []
    whole, _, cut = path.read_text(encoding="utf-8").rpartition("\n")
    if cut:
        path.write_text(f"{whole}\n" if whole else "", encoding="utf-8")
    return whole.splitlines()
