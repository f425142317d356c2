"""What a part of the load run found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """The figures of a part, plain JSON values; and one line for each defect."""

    figures: dict[str, Any]
    failures: tuple[str, ...] = ()
