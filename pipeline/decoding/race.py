"""Several decoders on one fair clock, or one after the other.

Each lane's clock is the sum of the seconds it spent computing, as its own events report them. A
lane moves until its clock is `LEAD` ahead, then the one that is furthest behind does: so the lanes
advance together though only one computes at a time, and none pays for another.

They do not take turns at every step, because a turn costs: the plugin prepares a model anew for a
forward pass of another size than the last, which takes half a step of a small model.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from pipeline.decoding.events import Event, Prefill, Step

Mode = Literal["race", "sequential", "autoregressive", "speculative"]  # which lanes, and how
Schedule = Callable[[Mapping[str, Iterator[Event]]], Generator[tuple[str, Event]]]

LEAD = 0.05  # seconds; too short to be seen


def race(lanes: Mapping[str, Iterator[Event]]) -> Generator[tuple[str, Event]]:
    """Interleaves the lanes' events; of equals the first named moves.

    Closing it closes every lane that can be closed.
    """
    running = dict(lanes)
    clocks = dict.fromkeys(lanes, 0.0)
    name = ""
    with _closing(lanes):
        while running:
            behind = min(running, key=clocks.__getitem__)
            if name not in running or clocks[name] - clocks[behind] >= LEAD:
                name = behind
            event = next(running[name], None)
            if event is None:
                del running[name]
                continue
            if isinstance(event, Prefill | Step):
                clocks[name] += event.seconds
            yield name, event


def one_by_one(lanes: Mapping[str, Iterator[Event]]) -> Generator[tuple[str, Event]]:
    """Runs each lane to its end, in their order: none is interrupted. Closes as `race` does."""
    with _closing(lanes):
        for name, lane in lanes.items():
            for event in lane:
                yield name, event


def schedule_of(mode: Mode) -> Schedule:
    """How the lanes of a mode take turns."""
    return one_by_one if mode == "sequential" else race


@contextmanager
def _closing(lanes: Mapping[str, Iterator[Event]]) -> Iterator[None]:
    try:
        yield
    finally:
        for lane in lanes.values():
            if isinstance(lane, Generator):
                lane.close()
