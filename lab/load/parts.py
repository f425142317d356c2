"""The parts of a run, what each found, and how that is shown."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from lab.table import table


@dataclass(frozen=True, slots=True)
class Finding:
    """The figures of a part, plain JSON values; and one line for each defect."""

    figures: dict[str, Any]
    failures: tuple[str, ...] = ()


def run(name: str, part: Iterable[Finding]) -> dict[str, Any]:
    """The figures, the failures and the seconds of a part, which runs as it is iterated. An
    exception is a failure, and what was found before is kept.
    """
    begun, figures, failures = perf_counter(), dict[str, Any](), list[str]()
    try:
        for finding in part:
            figures |= finding.figures
            failures += finding.failures
    except Exception as error:
        traceback.print_exc()
        line = (str(error).splitlines() or [""])[0]
        failures.append(f"{type(error).__name__}: {line}")
    seconds = round(perf_counter() - begun, 1)
    print(f"{name}: {seconds} s, {len(failures)} failures", file=sys.stderr)
    return {"seconds": seconds, "failures": failures, **figures}


def show(results: Mapping[str, Any]) -> int:
    """Prints the figures as a table, and the failures; returns the exit status: 1 if any failed."""
    rows = [
        [f"{name}: {figure}", json.dumps(value, ensure_ascii=False)]
        for name, figures in results.items()
        for figure, value in figures.items()
        if figure != "failures"
    ]
    table(("part", "figure"), rows)
    failures = [(name, line) for name, each in results.items() for line in each["failures"]]
    for name, line in failures:
        print(f"{name} FAILED: {line}")
    return int(bool(failures))
