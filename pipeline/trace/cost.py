"""What a token costs beside time: CPU seconds, bytes of weights read, joules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # which has the costs among its figures
    from pipeline.trace.record import Lane, StepRecord, Trace

RAPL = "by RAPL, of the whole processor"


@dataclass(frozen=True, slots=True)
class Cost:
    """Per emitted token, the prompt left out. What a record lacks is None.

    Attributes:
        cpu_s: seconds of CPU time, as a `Meter` counts them.
        weight_bytes: computed from counts: every forward pass of a model reads its weights once.
        joules: measured, or else the CPU time at the record's watts per core.
        joules_by: which of the two: `RAPL`, or that it is estimated and how.
    """

    cpu_s: float | None
    weight_bytes: float | None
    joules: float | None
    joules_by: str | None


def cost(trace: Trace, lane: Lane) -> Cost:
    """What a token of the lane has cost so far."""
    target, draft = (each.get("pass_bytes") for each in (trace.pair["target"], trace.draft_model))

    def read(step: StepRecord) -> float | None:
        if step.draft_passes and draft is not None and target is not None:
            return float(target + step.draft_passes * draft)
        return target if step.draft_passes == 0 else None

    def per_token(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        whole = known and lane.tokens and len(known) == len(lane.steps)
        return math.fsum(known) / len(lane.tokens) if whole else None

    cpu_s = per_token(step.cpu_s for step in lane.steps)
    joules = per_token(step.joules for step in lane.steps)
    joules_by = None if joules is None else RAPL
    watts = trace.environment.get("watts_per_core")
    if joules is None and cpu_s is not None and isinstance(watts, int | float):
        joules, joules_by = cpu_s * watts, f"estimated at {watts:g} W per core"
    return Cost(cpu_s, per_token(map(read, lane.steps)), joules, joules_by)


def figures(costs: Sequence[Cost]) -> str:
    """What is known of each of them, in words; "" if nothing is."""
    units = (
        ("cpu_s", 1e3, ".1f", "ms of CPU time"),
        ("weight_bytes", 1e-6, ",.0f", "MB of weights read (computed)"),
        ("joules", 1.0, ".3g", f"J ({costs[0].joules_by})"),
    )
    parts = []
    for name, scale, digits, unit in units:
        values = [getattr(each, name) for each in costs]
        if None not in values:
            parts.append(f"{' → '.join(f'{scale * value:{digits}}' for value in values)} {unit}")
    return ", ".join(parts)
