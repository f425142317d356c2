"""Progress of long-running work."""

from __future__ import annotations

from dataclasses import dataclass

_UNITS = ("B", "kB", "MB", "GB", "TB")


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of `total` in a stage; a total of 0 means unknown. `unit` is "B" for bytes."""

    stage: str
    done: int = 0
    total: int = 0
    unit: str = ""

    def __str__(self) -> str:
        if not self.total:
            return self.stage
        if self.unit == "B":
            return f"{self.stage} {in_bytes(self.done)} of {in_bytes(self.total)}"
        return f"{self.stage} {self.done} of {self.total}"


def in_bytes(count: float) -> str:
    """The count with a suitable unit, as in "5.6 GB"."""
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit in ("B", "kB") else f"{count:.1f} {unit}"
