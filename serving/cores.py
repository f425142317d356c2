"""Cores for replicas: each has some of its own, and nobody else's.

A replica claims its cores by locks on files, which the system releases when its process ends,
however it ends. Ray's own CPUs are numbers that bind nothing.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from pipeline.errors import UserError

_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/{}"


@dataclass(frozen=True, slots=True)
class Cores:
    """Cores of this machine that are claimed until the process ends.

    Attributes:
        ids: as the system counts them.
    """

    ids: tuple[int, ...]
    _locks: ExitStack = field(repr=False, compare=False)

    def pin(self) -> None:
        """Confines all threads of this process, and those that they start, to the cores."""
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), self.ids)


def shares(size: int) -> list[tuple[int, ...]]:
    """The cores that this process may use, in shares of `size`; the threads of a core are side by
    side.
    """
    cores = sorted(os.sched_getaffinity(0), key=_place)
    return [tuple(cores[at : at + size]) for at in range(0, len(cores) - size + 1, size)]


def claim(size: int, folder: Path | None = None) -> Cores:
    """The first share that nobody has claimed.

    Args:
        size: of the share.
        folder: of the locks; None takes the one for this machine.

    Raises:
        UserError: all are claimed.
    """
    folder = folder or Path(tempfile.gettempdir()) / f"dolly-cores-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for ids in shares(size):
        with ExitStack() as locks:
            if all(_lock(locks.enter_context((folder / str(core)).open("w"))) for core in ids):
                return Cores(ids, locks.pop_all())
    remedy = "other replicas have the cores; end those, or start fewer"
    raise UserError("cores", f"{size} of {len(os.sched_getaffinity(0))}", remedy)


def _lock(file: TextIO) -> bool:
    """Whether the lock was free; it is taken then."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _place(core: int) -> tuple[int, int, int]:
    """Where the core is: the package, the physical core and its own number."""
    package, physical = (
        Path(_TOPOLOGY.format(core, name)) for name in ("physical_package_id", "core_id")
    )
    if not (package.is_file() and physical.is_file()):
        return 0, core, core
    return int(package.read_text()), int(physical.read_text()), core
