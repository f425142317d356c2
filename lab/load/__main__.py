"""Measures what the server withstands: many visitors, many races, hostile calls and files,
clients that do not read or send, and broken conversions.

    python -m lab.load [--only visitors memory calls idle traces conversions]

The exit status is 1 if anything failed; each failure is a line. Each part that ran with its default
sizes is saved by itself; the others are only shown.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from lab.load import calls, conversions, idle, memory, traces, visitors
from lab.load.parts import Finding, run, show
from lab.saved import save_parts
from pipeline.errors import UserError
from pipeline.models.pairs import DEFAULT_PAIR

PARTS: dict[str, tuple[str, ...]] = {  # the options that are its sizes
    "visitors": ("pair", "visitors", "places"),
    "memory": ("pair", "races"),
    "calls": ("pair", "calls"),
    "idle": ("pair",),
    "traces": ("traces",),
    "conversions": ("cases",),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.load", description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS], help="(default: all)")
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
    parts: dict[str, Callable[[Path], Finding]] = {
        "visitors": lambda work: visitors.measure(work, pair, options.visitors, options.places),
        "memory": lambda work: memory.measure(work, pair, options.races),
        "calls": lambda work: calls.measure(work, pair, options.calls),
        "idle": lambda work: idle.measure(work, pair),
        "traces": lambda work: traces.measure(work, options.traces),
        "conversions": lambda work: conversions.measure(work, options.cases),
    }

    def in_an_empty_folder(name: str) -> Iterator[Finding]:
        with tempfile.TemporaryDirectory(prefix=f"load-{name}-") as work:
            yield parts[name](Path(work))

    chosen = [name for name in PARTS if name in options.only]
    results = run({name: partial(in_an_empty_folder, name) for name in chosen})
    status = show(results)
    changed = {name for name, value in vars(options).items() if value != parser.get_default(name)}
    whole = {name: each for name, each in results.items() if not changed & {*PARTS[name]}}
    if whole:
        print(save_parts("load", whole))
    for name in results.keys() - whole:
        print(f"{name}: not saved, since its sizes are not the default ones", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
