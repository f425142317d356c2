"""Schedules several decoders: interleaved on a fair clock, or one after the other.

Each lane's clock is the sum of the seconds it spent computing, as its own events report them. A
lane runs until its clock is `LEAD` ahead, then the lane that is furthest behind does. So the lanes
advance together although only one computes at a time, and no lane's clock includes another's work.

Lanes do not alternate at every step, since a switch has a cost: the plugin prepares a model again
for a forward pass of another size than the last, which takes half a step of a small model.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, get_args

from pipeline.decoding.events import AUTOREGRESSIVE, SPECULATIVE, Event, Prefill, Step
from pipeline.errors import UserError

Mode = Literal["race", "sequential", "autoregressive", "speculative"]  # which lanes, and how
Schedule = Callable[[Mapping[str, Iterator[Event]]], Generator[tuple[str, Event]]]

LEAD = 0.05  # seconds; too short to be visible


def race(lanes: Mapping[str, Iterator[Event]]) -> Generator[tuple[str, Event]]:
    """Interleaves the events of the lanes; the first one wins a tie.

    Closing it closes every lane that is a generator.
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
    """Runs each lane to its end, in order. Closing it closes the lanes as `race` does."""
    with _closing(lanes):
        for name, lane in lanes.items():
            for event in lane:
                yield name, event


def lanes_of(mode: Mode) -> tuple[str, ...]:
    """The names of a mode's lanes."""
    return (mode,) if mode in (AUTOREGRESSIVE, SPECULATIVE) else (AUTOREGRESSIVE, SPECULATIVE)


def check_mode(mode: str) -> None:
    """Raises UserError unless there is such a mode."""
    if mode not in get_args(Mode):
        raise UserError("mode", mode, f"choose one of {', '.join(get_args(Mode))}")


def schedule_of(mode: Mode) -> Schedule:
    """The schedule of a mode."""
    return one_by_one if mode == "sequential" else race


@contextmanager
def _closing(lanes: Mapping[str, Iterator[Event]]) -> Iterator[None]:
    try:
        yield
    finally:
        for lane in lanes.values():
            if isinstance(lane, Generator):
                lane.close()
