"""Traces of the fake Dolly, whole or changed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
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


def costing(draft_s: float, verify_s: float, step_s: float = 0.010, **settings: Any) -> Trace:
    """A finished run whose steps took these seconds: `draft_s` for each drafted token."""
    return timed(
        {
            "autoregressive": lambda step: {"verify_s": step_s, "other_s": 0.0},
            "speculative": lambda step: {
                "draft_s": draft_s * len(step.drafted),
                "verify_s": verify_s,
                "other_s": 0.0,
            },
        },
        **settings,
    )


def changed(trace: Trace, name: str = "speculative", **changes: Any) -> Trace:
    """The trace with another lane of this name."""
    return replace(trace, lanes={**trace.lanes, name: replace(trace.lanes[name], **changes)})


def paced(trace: Trace, name: str, seconds: Sequence[float]) -> Trace:
    """The trace with these times of a lane's passes, in turn."""
    steps = zip(trace.lanes[name].steps, cycle(seconds), strict=False)
    return changed(trace, name, steps=tuple(replace(step, verify_s=each) for step, each in steps))


def contradicting() -> Trace:
    """A race that lost where its medians gain: most rounds are cheap, and the others lose more
    than these gain.
    """
    trace = paced(costing(0.0005, 0.010, max_new_tokens=60), "autoregressive", [0.0065])
    rounds = len(trace.lanes["speculative"].steps)
    costly = rounds // 2 - 1
    return paced(trace, "speculative", [*[0.029] * costly, *[0.010] * (rounds - costly)])


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
