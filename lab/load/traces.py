"""Mutated trace files, opened as a visitor's are: each replays, or is refused in one line."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from lab.load.mutants import mutated_text
from lab.load.parts import Finding
from pipeline.errors import UserError
from ui.run.recorded import recorded
from ui.session import Session

LONGEST = 2.0  # seconds of a file
_LONGEST_LINE = 300  # characters


def opened(file: Path) -> str:
    """Opens it in a tab of its own, with the files to download; returns the line that refuses it,
    and nothing of a trace.
    """
    session = Session()
    try:
        session.open(file)
        session.files()
    except UserError as error:
        return str(error)
    finally:
        session.close()
    return ""


def measure(work: Path, count: int = 3_000, open_trace: Callable[[Path], str] = opened) -> Finding:
    """Opens so many mutants of the recorded run, always the same.

    Args:
        work: an empty folder.
        open_trace: returns a line, or nothing of a trace.
    """
    random, record = Random(0), recorded().to_dict()
    found: list[str] = []
    outcomes: Counter[str] = Counter()
    slowest, file = 0.0, work / "trace.json"
    for number in range(count):
        text = mutated_text(record, random)
        file.write_text(text, encoding="utf-8", errors="surrogatepass")
        begun = time.perf_counter()
        try:
            line = open_trace(file)
        except Exception as error:
            found.append(f"mutant {number}: {type(error).__name__} {error}")
            continue
        finally:
            slowest = max(slowest, took := time.perf_counter() - begun)
        outcomes["refused" if line else "opened"] += 1
        if "\n" in line or len(line) > _LONGEST_LINE:
            found.append(f"mutant {number}: more than a line: {line[:_LONGEST_LINE]!r}")
        if took > LONGEST:
            found.append(f"mutant {number}: took {took:.1f} s")
    figures: dict[str, Any] = {"mutants": count, **outcomes, "slowest_s": round(slowest, 3)}
    return Finding(figures, tuple(found))
