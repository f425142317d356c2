"""The memory of the server after many races, each in a tab of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from lab.load.parts import Finding
from lab.load.server import ready
from lab.load.visitor import Visitor
from pipeline.models.pairs import DEFAULT_PAIR

LIMIT = 1.0  # MB per 100 races, between the last two counts
_RACES = (100, 250, 500, 1_000)  # the server keeps the last 256 visitors
_TOKENS = 8
_MB = 1e6


def growth(resident_mb: Mapping[int, float]) -> float:
    """Megabytes per 100 races, between the last two counts."""
    (before, less), (after, more) = sorted(resident_mb.items())[-2:]
    return 100 * (more - less) / (after - before)


def failures(resident_mb: Mapping[int, float]) -> Iterator[str]:
    """A line if the memory grows."""
    if (grown := growth(resident_mb)) > LIMIT:
        yield f"the memory grows by {grown:.1f} MB per 100 races, more than {LIMIT:.1f}"


def measure(work: Path, pair: str = DEFAULT_PAIR, counts: Sequence[int] = _RACES) -> Finding:
    """Races so often, one race after the other.

    Args:
        work: an empty folder.
        pair: a name of the registry, or a folder.
        counts: of races after which the memory is read, at least two.
    """
    megabytes: dict[int, float] = {}
    with ready(work, pair) as server:
        for number in range(1, 1 + max(counts)):
            asked = {"Instruction": f"What is {number} plus one?", "New tokens": _TOKENS}
            with closing(Visitor(server.url)) as tab:
                if line := tab.press("Run both", asked).failure():
                    raise RuntimeError(line)
            if number in counts:
                megabytes[number] = server.memory["page"] / _MB
        logged = [f"the server's log: {line}" for line in server.errors.splitlines()]
    figures = {
        "tokens": _TOKENS,
        "resident_mb": {count: round(value, 1) for count, value in megabytes.items()},
        "mb_per_100_races": round(growth(megabytes), 2),
    }
    return Finding(figures, (*failures(megabytes), *logged))
