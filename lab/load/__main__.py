"""Measures what the server withstands: many visitors, many races, hostile calls and files,
clients that do not read or send, and broken conversions.

    python -m lab.load [--only visitors memory calls idle traces conversions]

The exit status is 1 if anything failed; each failure is a line. Each part that ran is saved by
itself in `lab/results/load.json`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lab.load import calls, conversions, idle, memory, parts, traces, visitors
from lab.load.parts import Finding
from lab.saved import save_parts

PARTS: dict[str, Callable[[Path], Finding]] = {
    "visitors": visitors.measure,
    "memory": memory.measure,
    "calls": calls.measure,
    "idle": idle.measure,
    "traces": traces.measure,
    "conversions": conversions.measure,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.load", description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS], help="(default: all)")
    names = parser.parse_args(arguments).only
    results = {name: parts.run(name, _in_an_empty_folder(name)) for name in names}
    status = parts.show(results)
    print(save_parts("load", results))
    return status


def _in_an_empty_folder(name: str) -> Iterator[Finding]:
    with tempfile.TemporaryDirectory(prefix=f"load-{name}-") as work:
        yield PARTS[name](Path(work))


if __name__ == "__main__":
    sys.exit(main())
