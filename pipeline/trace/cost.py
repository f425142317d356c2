"""What a token costs beside time: CPU seconds, bytes of weights read, joules."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # which has the costs among its figures
    from pipeline.trace.record import Lane, Trace

NO_DIFFERENCE = 0.05  # a ratio of CPU times this close to 1 counts as none

_USED = ("cpu_s", "joules")  # fields of a step


@dataclass(frozen=True, slots=True)
class Cost:
    """Per emitted token, the prompt left out. What a record lacks is None.

    Attributes:
        cpu_s: seconds of CPU time, as `pipeline.power` counts them.
        weight_bytes: computed from counts: every forward pass of a model reads its weights once.
        joules: measured, or else the CPU time at the record's watts per core.
        joules_by: which of the two.
    """

    cpu_s: float | None
    weight_bytes: float | None
    joules: float | None
    joules_by: Literal["rapl", "estimate"] | None


def cost(trace: Trace, lane: Lane) -> Cost:
    """What a token of the lane has cost so far."""
    cpu_s, joules = (_total(getattr(step, name) for step in lane.steps) for name in _USED)
    by: Literal["rapl", "estimate"] = "rapl"
    watts = trace.environment.get("watts_per_core")
    if joules is None and cpu_s is not None and isinstance(watts, int | float) and watts > 0:
        joules, by = cpu_s * watts, "estimate"
    count = len(lane.tokens)
    return Cost(
        cpu_s=_each(cpu_s, count),
        weight_bytes=_each(_weight_bytes(trace, lane), count),
        joules=_each(joules, count),
        joules_by=None if joules is None or not count else by,
    )


def more_cpu(trace: Trace) -> float | None:
    """How many times the CPU time of an autoregressive token a speculative one took, where that is
    more; None where it is not, or was not recorded.
    """
    slow, fast = trace.autoregressive, trace.speculative
    if not (slow and fast):
        return None
    once, now = cost(trace, slow).cpu_s, cost(trace, fast).cpu_s
    return now / once if once and now and now / once > 1 + NO_DIFFERENCE else None


def _weight_bytes(trace: Trace, lane: Lane) -> float | None:
    """Bytes of the target's weights × its passes + those of the draft × its passes."""
    drafting = trace.pair.get("block" if trace.drafts_blocks else "draft") or {}
    target = trace.pair["target"].get("pass_bytes")
    draft_passes = _total(step.draft_passes for step in lane.steps)
    of_draft = drafting.get("pass_bytes") if draft_passes else 0
    if target is None or of_draft is None or draft_passes is None:
        return None
    return float(target * len(lane.steps) + of_draft * draft_passes)


def _total(values: Iterable[float | None]) -> float | None:
    """Their sum; None if one is missing."""
    known = [*values]
    return None if None in known else math.fsum(filter(None, known))


def _each(total: float | None, count: int) -> float | None:
    return None if total is None or not count else total / count
