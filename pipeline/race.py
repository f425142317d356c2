"""Several decoders on one fair clock.

Each lane's clock is the sum of the seconds it spent computing, as its own events report them. The
lane whose clock is behind is always the next to move, so the lanes advance together though only
one computes at a time, and none pays for another.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping

from pipeline.events import Event, Prefill, Step


def race(lanes: Mapping[str, Iterator[Event]]) -> Generator[tuple[str, Event]]:
    """Interleaves the lanes' events; on a tie the first named moves.

    Closing it closes every lane that can be closed.
    """
    running = dict(lanes)
    clocks = dict.fromkeys(lanes, 0.0)
    try:
        while running:
            name = min(running, key=clocks.__getitem__)
            event = next(running[name], None)
            if event is None:
                del running[name]
                continue
            if isinstance(event, Prefill | Step):
                clocks[name] += event.seconds
            yield name, event
    finally:
        for lane in lanes.values():
            if isinstance(lane, Generator):
                lane.close()
