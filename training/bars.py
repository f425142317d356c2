"""The bars that the pair was to reach, beside what was measured. Figures only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_TOKENS_PER_RUN = 2.2  # at K = 4
_SPEEDUPS = {  # by setting; of others nothing was asked
    "greedy, K = 4": 1.6,
    "greedy, K = auto": 1.6,
    "sampled, K = 4": 1.4,
    "sampled, K = auto": 1.4,
    "hybrid, K = 4": 2.0,
    "hybrid, K = auto": 2.0,
}


@dataclass(frozen=True, slots=True)
class Bar:
    """One figure.

    Attributes:
        least: whether it must be at least `bar`, or at most.
        form: how both are written.
        detail: what the figure is made of.
    """

    name: str
    measured: float
    bar: float
    least: bool
    form: str
    detail: str = ""

    @property
    def reached(self) -> bool:
        return self.measured >= self.bar if self.least else self.measured <= self.bar

    @property
    def missed_by(self) -> str:
        """As text, shares in percentage points; empty if it was reached."""
        gap = self.form.format(abs(self.measured - self.bar))
        return "" if self.reached else gap.replace("%", " points")


def bars(figures: Mapping[str, Any], shares: Mapping[str, float] | None = None) -> list[Bar]:
    """Of the parts that were measured, and of the answers if they were read.

    Args:
        figures: as evaluation.json holds them.
        shares: of the answers read, by mark.
    """
    found: list[Bar] = []
    if "language" in figures:
        found += _language(figures["language"])
    if "answers" in figures:
        found += _answers(figures["answers"])
    for part, title in (("open", "without a context"), ("context", "with a context")):
        for setting, races in figures.get(part, {}).items():
            if setting in _SPEEDUPS:
                found += _races(f"{title}, {setting}", setting, races)
    if shares is not None:
        to_the_point = shares["right"] + shares["fact"]
        found += [
            Bar(
                "answers read: to the point, right or wrong in a fact",
                to_the_point,
                0.8,
                True,
                "{:.0%}",
            ),
            Bar("answers read: garbled", shares["garbled"], 0.0, False, "{:.0%}"),
        ]
    largest = max(figures["bytes"].values()) / 1e6
    return [*found, Bar("largest file, MB", largest, 95, False, "{:.1f}")]


def _language(figures: Mapping[str, Any]) -> list[Bar]:
    by_model = figures["bits_per_byte"]
    shipped, exact = by_model["shipped"], by_model["float32"]
    detail = f"{figures['records']} records; float32 {exact:.3f}"
    if "base" in by_model:
        detail += f", before fine-tuning {by_model['base']:.3f}"
    detail += f"; with the end key {figures['with_end_key']['shipped']:.3f}"
    gap = shipped - exact
    return [
        Bar("bits per byte of the reference responses", shipped, 0.80, False, "{:.3f}", detail),
        Bar("bits per byte, shipped minus float32", gap, 0.02, False, "{:.3f}"),
    ]


def _answers(figures: Mapping[str, Any]) -> list[Bar]:
    count, ends, looping = figures["races"], figures["ends"], figures["loops"]
    by_people = f"{looping} of {count}; of the reference responses {figures['reference_loops']}"
    same = figures["identical"]
    return [
        Bar(
            "answers that end by themselves",
            ends / count,
            0.9,
            True,
            "{:.1%}",
            f"{ends} of {count}",
        ),
        Bar("answers that loop", looping / count, 0.03, False, "{:.1%}", by_people),
        Bar("greedy texts identical", same / count, 1.0, True, "{:.1%}", f"{same} of {count}"),
    ]


def _races(name: str, setting: str, figures: Mapping[str, Any]) -> list[Bar]:
    found = []
    if figures["speedup"] is not None:
        low, median, high = figures["speedup"]
        detail = f"quartiles {low:.2f} and {high:.2f}; races: {figures['races']}"
        bar = _SPEEDUPS[setting]
        found.append(Bar(f"median speedup, {name}", median, bar, True, "{:.2f}", detail))
    if setting == "greedy, K = 4":
        runs = figures["tokens_per_run"]
        found.append(Bar(f"tokens a target pass, {name}", runs, _TOKENS_PER_RUN, True, "{:.2f}"))
    return found


def table(found: Sequence[Bar]) -> str:
    """As Markdown."""
    lines = ["| figure | measured | bar | reached | |", "|---|---|---|---|---|"]
    for bar in found:
        sign = "≥" if bar.least else "≤"
        reached = "yes" if bar.reached else f"**no, by {bar.missed_by}**"
        measured, wanted = bar.form.format(bar.measured), bar.form.format(bar.bar)
        lines.append(f"| {bar.name} | {measured} | {sign} {wanted} | {reached} | {bar.detail} |")
    return "\n".join(lines)
