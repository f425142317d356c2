"""Traces of the fake Dolly, whole or changed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipeline.request import Request
from pipeline.trace.record import StepRecord, Trace
from tests.fake_dolly import FakeDolly

WORDS = [f" word{i}" for i in range(12)]
VARIED = [f" word{i}" for i in range(120)]  # greedy, their tables do not repeat themselves soon
MARKUP = (
    "<img src=x onerror='window.hacked=1'>",
    "<script>window.hacked=2</script>",
    "${window.hacked=3}",
    "{{window.hacked}}",
    "</span></div>",
    "`&amp;\"'\\",
    "\n",
    "\u2028 ünï 🐕",
)
STRANGE = (
    *MARKUP,
    "שלום עולם",
    "\u202egnp.exe",
    "zero\u200bwidth\u2060",
    "w" * 10_000,
    "",  # a part of a character
    "👩‍🚀",
)


def ran(texts: Sequence[str] = WORDS, **settings: Any) -> Trace:
    """The trace of a finished run."""
    return FakeDolly(texts).start(Request("Say something", **settings)).finish()


def timed(lanes: Mapping[str, Callable[[StepRecord], dict[str, float]]], **settings: Any) -> Trace:
    """A finished run whose steps took the seconds that a lane's function returns."""
    trace = ran(**settings)
    changed = {
        name: replace(
            trace.lanes[name],
            steps=tuple(replace(step, **seconds(step)) for step in trace.lanes[name].steps),
        )
        for name, seconds in lanes.items()
    }
    return replace(trace, lanes={**trace.lanes, **changed})


def alone(trace: Trace, name: str) -> Trace:
    """One of its lanes."""
    return replace(trace, lanes={name: trace.lanes[name]})


def old(trace: Trace) -> dict[str, Any]:
    """Its JSON, as it was before steps named the likeliest tokens and what was rolled back."""
    record = trace.to_dict()
    del record["pieces"]
    for lane in record["lanes"].values():
        for step in lane["steps"]:
            for name in ("target_top", "draft_top", "target_rolled_back", "draft_rolled_back"):
                step.pop(name, None)
    return record
