"""The environment of a run: machine, versions and memory, as a trace records them."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from math import inf
from pathlib import Path
from typing import Any

from pipeline.errors import UserError

_PACKAGES = ("openvino", "optimum-intel", "transformers", "tokenizers", "nncf", "gradio", "numpy")
_VARIABLE = "DOLLY_WATTS_PER_CORE"
_WATTS = "5"  # about a server processor's rated power divided by its cores


def environment() -> dict[str, Any]:
    """The trace's `environment`: plain JSON values. Absent packages are left out.

    Raises:
        UserError: as `watts_per_core`.
    """
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_bytes": memory_bytes(),
        "watts_per_core": watts_per_core(),
        "threads": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "os": platform.platform(terse=True),
        "python": platform.python_version(),
        **{name: found for name in _PACKAGES if (found := _version(name))},
    }


def watts_per_core() -> float:
    """The watts of a busy core by which energy is estimated: `DOLLY_WATTS_PER_CORE`, or 5.

    Raises:
        UserError: the variable is no positive number.
    """
    text = os.environ.get(_VARIABLE) or _WATTS
    with suppress(ValueError):
        if 0 < (watts := float(text)) < inf:
            return watts
    raise UserError(_VARIABLE, text, f"set the watts of a busy core, such as {_WATTS}")


def memory_bytes() -> int:
    """Memory of this machine, or the limit of this container."""
    if not hasattr(os, "sysconf"):  # Windows: unknown, so no model is refused
        return sys.maxsize
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.is_file() else ""
    return min(total, int(text)) if text.isdigit() else total


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory in use and its limit, both in bytes.

    Attributes:
        what: uses it, in words.
        remedy: what to do when it is near its limit, a sentence without its full stop.
    """

    what: str
    used: int
    limit: int
    remedy: str

    @property
    def share(self) -> float:
        return self.used / self.limit


@dataclass(frozen=True, slots=True)
class PoolUse:
    """A pool of blocks at one moment. All sequences of a model, those of both lanes and the shared
    prefix, have their blocks in one pool.

    Attributes:
        pool_bytes: of all its blocks, in use or not.
        blocks: in all.
        used: blocks that a sequence refers to, and the one for padding.
        shared: blocks that several sequences refer to.
        high_water: the most that were in use at once since the models were loaded.
        recycled: times that a block was allocated again after it had been freed, since then.
        copied: blocks copied because a sequence wrote to a shared one, since then.
    """

    pool_bytes: int
    blocks: int
    used: int
    shared: int
    high_water: int
    recycled: int
    copied: int


def process_memory() -> tuple[MemoryUse, ...]:
    """What this process uses of the memory of its machine or container; empty where the system
    does not report it.
    """
    statm = Path("/proc/self/statm")
    if not statm.is_file():
        return ()
    resident = int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    remedy = "Choose fewer new tokens, int4 weights or a smaller pair"
    return (MemoryUse("the process", resident, memory_bytes(), remedy),)


def give_back_memory() -> None:
    """Gives memory that is free back to the system, in some milliseconds.

    The C library of Linux (glibc) keeps most of what was freed between two blocks still in use, for
    this process alone. Other C libraries are left alone.
    """
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    """The processor's name. On Linux, Python does not read it from /proc/cpuinfo."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
