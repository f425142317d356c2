"""CPU time and energy of work in this process.

CPU time is the process's, without that of its other Python threads (the server's, the page's) where
Linux reports them: of the calling thread and of native threads, OpenVINO's among them. Energy is of
the processors' packages, and so of everything that runs on them, where Linux reports it (RAPL).
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import process_time
from typing import TypedDict

POWERCAP = Path("/sys/class/powercap")

_THREAD_CLOCK = 0b110  # of Linux: the clock of a thread's CPU time, in the low bits of its id


class Used(TypedDict):
    """What work took: seconds of CPU time, and joules; None where they cannot be measured."""

    cpu_s: float
    joules: float | None


class Meter:
    """Adds up what spans of work in one thread take.

    Args:
        powercap: where Linux reports the energy of packages; by default only root can read it.
    """

    def __init__(self, powercap: Path = POWERCAP) -> None:
        packages = (
            zone
            for zone in powercap.glob("intel-rapl:*")
            if _read(zone / "name").startswith("package") and _read(zone / "energy_uj")
        )
        # The microjoules at which each counter starts again from zero.
        self._ranges = {zone: int(_read(zone / "max_energy_range_uj")) for zone in packages}
        self._began: tuple[Mapping[Path, int], Mapping[int, float], float] = ({}, {}, 0.0)
        self._cpu_s = self._joules = 0.0

    def start(self) -> None:
        """Begins a span."""
        self._began = self._energy(), other_threads(), process_time()

    def stop(self) -> None:
        """Ends the span."""
        cpu_s, others, energy = process_time(), other_threads(), self._energy()
        energy_before, others_before, began = self._began
        # The time of a thread that ended within the span is not known, and counts.
        elsewhere = sum(s - others_before.get(thread, 0.0) for thread, s in others.items())
        self._cpu_s += max(0.0, cpu_s - began - elsewhere)
        for zone, full in self._ranges.items():
            self._joules += (energy[zone] - energy_before[zone]) % full / 1e6

    def take(self) -> Used:
        """What the spans since the last call took."""
        used = Used(cpu_s=self._cpu_s, joules=self._joules if self._ranges else None)
        self._cpu_s = self._joules = 0.0
        return used

    def _energy(self) -> dict[Path, int]:
        """Microjoules by package, from any starting point; empty where nothing can be read."""
        return {zone: int(_read(zone / "energy_uj")) for zone in self._ranges}


def other_threads() -> dict[int, float]:
    """CPU seconds by id of the other Python threads; empty where they are not reported."""
    times = dict[int, float]()
    if sys.platform != "linux":
        return times
    own = threading.get_native_id()
    for thread in threading.enumerate():
        if thread.native_id not in (None, own):
            with suppress(OSError):  # it has ended; `pthread_getcpuclockid` could crash then
                clock = (~thread.native_id << 3) | _THREAD_CLOCK
                times[thread.native_id] = time.clock_gettime(clock)
    return times


def _read(path: Path) -> str:
    """The text of a file of the kernel's; empty if it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
