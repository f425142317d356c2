"""The memory of the server after many races, each in a tab of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from lab.load.parts import Finding
from lab.load.server import Server, ready
from lab.load.visitor import Visitor
from pipeline.errors import UserError

LIMIT = 1.0  # MB per 100 races, between the last two counts
_TOKENS = 8
_MB = 1e6


def check(counts: Sequence[int]) -> None:
    """
    Raises:
        UserError: growth cannot be computed from the memory after so many races.
    """
    if len({*counts}) < 2 or min(counts) < 1:
        value = " ".join(map(str, counts))
        raise UserError("races", value, "give two different numbers at least, from 1")


def resident(server: Server, counts: Sequence[int]) -> dict[int, float]:
    """Megabytes of the server's memory after each of these numbers of races."""
    found = {}
    for number in range(1, 1 + max(counts)):
        asked = {"Instruction": f"What is {number} plus one?", "New tokens": _TOKENS}
        with closing(Visitor(server.url, page=True)) as tab:
            tab.press("Run both", asked).wait()
        if number in counts:
            found[number] = server.memory["page"] / _MB
    return found


def growth(resident_mb: Mapping[int, float]) -> float:
    """Megabytes per 100 races, between the last two counts."""
    (before, less), (after, more) = sorted(resident_mb.items())[-2:]
    return 100 * (more - less) / (after - before)


def failures(resident_mb: Mapping[int, float]) -> Iterator[str]:
    """A line if the memory grows."""
    if (grown := growth(resident_mb)) > LIMIT:
        yield f"the memory grows by {grown:.1f} MB per 100 races, more than {LIMIT:.1f}"


def measure(work: Path, pair: str, counts: Sequence[int]) -> Finding:
    """Races so often, one race after the other.

    Args:
        work: an empty folder.
        pair: a name of the registry, or a folder.
        counts: of races after which the memory is read, at least two (see `check`). The server
            keeps the last 256 visitors, so that the last two should be more.
    """
    with ready(work, pair) as server:
        megabytes = resident(server, counts)
        logged = [f"the server's log: {line}" for line in server.errors.splitlines()]
    figures = {
        "tokens": _TOKENS,
        "resident_mb": {count: round(value, 1) for count, value in megabytes.items()},
        "mb_per_100_races": round(growth(megabytes), 2),
    }
    return Finding(figures, (*failures(megabytes), *logged))
