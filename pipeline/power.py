"""CPU time and energy of work in this process.

CPU time is the process's, without that of its other Python threads (the server's, the page's) where
Linux reports them: of the calling thread and of native threads, OpenVINO's among them. Energy is of
the processors' packages, and so of everything that runs on them, where Linux reports it (RAPL).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from math import inf
from pathlib import Path
from time import process_time
from typing import TypedDict

from pipeline.errors import UserError

POWERCAP = Path("/sys/class/powercap")
WATTS_PER_CORE = 5.0  # about a server processor's rated power divided by its cores

_VARIABLE = "DOLLY_WATTS_PER_CORE"
_THREAD_CLOCK = 0b110  # of Linux: the clock of a thread's CPU time, in the low bits of its id


class Used(TypedDict):
    """What work took: seconds of CPU time, and joules; None where they cannot be measured."""

    cpu_s: float
    joules: float | None


class Meter:
    """Adds up what spans of work in one thread take.

    Args:
        powercap: where Linux reports the energy of packages.
    """

    def __init__(self, powercap: Path = POWERCAP) -> None:
        self._energy = EnergyMeter(powercap)
        self._began: tuple[float, Mapping[int, float], Mapping[Path, int]] = (0.0, {}, {})
        self._cpu_s = self._joules = 0.0

    def start(self) -> None:
        """Begins a span."""
        energy, others = self._energy.read(), other_threads()
        self._began = process_time(), others, energy

    def stop(self) -> None:
        """Ends the span."""
        cpu_s, others = process_time(), other_threads()
        began, before, energy = self._began
        # The time of a thread that ended within the span is not known, and counts.
        elsewhere = sum(seconds - before.get(thread, 0.0) for thread, seconds in others.items())
        self._cpu_s += max(0.0, cpu_s - began - elsewhere)
        self._joules += self._energy.joules_since(energy) or 0.0

    def take(self) -> Used:
        """What the spans since the last call took."""
        used = Used(cpu_s=self._cpu_s, joules=self._joules if self._energy.packages else None)
        self._cpu_s = self._joules = 0.0
        return used


class EnergyMeter:
    """RAPL's counters of the processors' packages. Linux lets only root read them by default.

    Args:
        root: where Linux reports them.

    Attributes:
        packages: those that can be read, and the microjoules at which each starts again.
    """

    def __init__(self, root: Path = POWERCAP) -> None:
        zones = (z for z in root.glob("intel-rapl:*") if _read(z / "name").startswith("package"))
        self.packages = {
            zone: int(_read(zone / "max_energy_range_uj"))
            for zone in zones
            if _read(zone / "energy_uj")
        }

    def read(self) -> dict[Path, int]:
        """Microjoules by package, from any starting point; empty where nothing can be read."""
        return {zone: int(_read(zone / "energy_uj")) for zone in self.packages}

    def joules_since(self, before: Mapping[Path, int]) -> float | None:
        """Joules since an earlier `read`; None where nothing can be read."""
        if not self.packages:
            return None
        now = self.read()
        used = ((now[zone] - before[zone]) % full for zone, full in self.packages.items())
        return sum(used) / 1e6


def watts_per_core() -> float:
    """The watts of a busy core by which energy is estimated: `DOLLY_WATTS_PER_CORE`, or 5.

    Raises:
        UserError: the variable is no positive number.
    """
    text = os.environ.get(_VARIABLE) or str(WATTS_PER_CORE)
    with suppress(ValueError):
        if 0 < (watts := float(text)) < inf:
            return watts
    raise UserError(_VARIABLE, text, "set the watts of a busy core, such as 5")


def other_threads() -> dict[int, float]:
    """CPU seconds by id of the other Python threads; empty where they are not reported."""
    times = dict[int, float]()
    if sys.platform != "linux":
        return times
    own = threading.get_native_id()
    for thread in threading.enumerate():
        if thread.native_id not in (None, own):
            with suppress(OSError):  # it has just ended
                times[thread.native_id] = time.clock_gettime(
                    (~thread.native_id << 3) | _THREAD_CLOCK
                )
    return times


def _read(path: Path) -> str:
    """The text of a file of the kernel's; empty if it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
