"""Measures what the server withstands: many visitors, many races, hostile calls and files,
clients that do not read or send, and broken conversions.

    python -m lab.load [--only visitors memory calls idle traces conversions]

The exit status is 1 if anything failed; each failure is a line. The result is saved when every part
ran with its default size.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from lab.load import calls, conversions, idle, memory, traces, visitors
from lab.load.finding import Finding
from lab.saved import save_figures
from lab.table import table
from pipeline.errors import UserError
from pipeline.models.pairs import DEFAULT_PAIR

Part = Callable[[Path], Finding]

PARTS = ("visitors", "memory", "calls", "idle", "traces", "conversions")


def run(parts: Mapping[str, Part]) -> dict[str, Any]:
    """The figures, the failures and the seconds of each part, each in an empty folder. An exception
    is a failure of its part.
    """
    results: dict[str, Any] = {}
    for name, part in parts.items():
        begun = perf_counter()
        with tempfile.TemporaryDirectory(prefix=f"load-{name}-") as work:
            try:
                finding = part(Path(work))
            except Exception as error:
                traceback.print_exc()
                finding = Finding({}, (f"{type(error).__name__}: {_first_line(error)}",))
        seconds = round(perf_counter() - begun, 1)
        print(f"{name}: {seconds} s, {len(finding.failures)} failures", file=sys.stderr)
        results[name] = {
            "seconds": seconds,
            "failures": list(finding.failures),
            **finding.figures,
        }
    return results


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]


def show(results: Mapping[str, Any]) -> None:
    """Prints the figures as a table, and the failures."""
    rows = [
        [f"{name}: {figure}", json.dumps(value, ensure_ascii=False)]
        for name, figures in results.items()
        for figure, value in figures.items()
        if not isinstance(value, list)
    ]
    table(("part", "figure"), rows)
    for name, figures in results.items():
        for failure in figures["failures"]:
            print(f"{name} FAILED: {failure}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.load", description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="(default: all)")
    parser.add_argument("--pair", default=DEFAULT_PAIR)
    parser.add_argument("--visitors", type=int, default=100)
    parser.add_argument("--places", type=int, default=64, help="in the server's queue")
    parser.add_argument("--races", type=int, nargs="+", default=[100, 250, 500, 1_000])
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--traces", type=int, default=3_000)
    parser.add_argument(
        "--cases", nargs="+", choices=conversions.CASES, default=[*conversions.CASES]
    )
    options = parser.parse_args(arguments)
    try:
        memory.check(options.races)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    pair = options.pair
    parts: dict[str, Part] = {
        "visitors": lambda work: visitors.measure(work, pair, options.visitors, options.places),
        "memory": lambda work: memory.measure(work, pair, options.races),
        "calls": lambda work: calls.measure(work, pair, options.calls),
        "idle": lambda work: idle.measure(work, pair),
        "traces": lambda work: traces.measure(work, options.traces),
        "conversions": lambda work: conversions.measure(work, options.cases),
    }
    results = run({name: parts[name] for name in PARTS if name in options.only})
    show(results)
    if options == parser.parse_args([]):
        print(save_figures("load", pair=pair, **results))
    else:
        print("not saved: an option is not the default", file=sys.stderr)
    return int(any(part["failures"] for part in results.values()))


if __name__ == "__main__":
    sys.exit(main())
