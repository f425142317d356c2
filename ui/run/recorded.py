"""Recorded runs: the one that the page shows first, and trace files that a visitor opens.

The first is a real run of the embedded pair, on the machine that its badge names:

    python -m pipeline "What are the steps to plant a tree?" --json assets/recorded.json
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

from pipeline.errors import UserError
from pipeline.trace.reader import parse_trace
from pipeline.trace.record import Trace
from ui.component import ASSETS

_RECORDED = ASSETS / "recorded.json"
LARGEST = 12 * 2**20  # bytes; twice what the longest run takes
_LONGEST_NAME = 80  # characters


@cache
def recorded() -> Trace:
    """The run that the page shows at first."""
    return read_trace(_RECORDED)


def read_trace(path: Path) -> Trace:
    """Reads a visitor's trace file.

    Raises:
        UserError: the file is too large, or is not a trace.
    """
    if (size := path.stat().st_size) > LARGEST:
        raise too_large(math.ceil(size / 2**20))
    try:
        return parse_trace(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise UserError("trace file", path.name, "choose a text file in UTF-8") from None


def too_large(megabytes: object) -> UserError:
    """The error of a file of so many megabytes."""
    remedy = f"choose one of at most {LARGEST // 2**20} MB"
    return UserError("trace file", f"{megabytes} MB", remedy)


def badge(word: str, trace: Trace) -> str:
    """The label of a recorded run: a word, the machine and the date."""
    cpu = str(trace.environment.get("cpu") or "an unknown machine")
    parts = (word, cpu, trace.created[:10])
    return " · ".join(part[:_LONGEST_NAME] for part in parts)
