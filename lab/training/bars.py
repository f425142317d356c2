"""The bars that the pair was to reach, beside what was measured. Figures only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_TOKENS_PER_RUN = 2.5  # of the block draft, at its best K
_BLOCK, _MODEL, _PAGE = "greedy, K = ", "draft model, greedy, K = ", "hybrid, greedy, K = auto"
_SPEEDUPS = {_PAGE: 1.9, "sampled, K = auto": 1.5, "hybrid, K = auto": 2.3}
_PAPERS_WAY = 1.3  # speedup with the draft model, at its best fixed K
_SLOWER = 0.02  # of the races as the page begins


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
            if setting in _SPEEDUPS and races["speedup"] is not None:
                found.append(_speedup(f"{title}, {setting}", races, _SPEEDUPS[setting]))
    found += _drafts(figures.get("open", {}))
    if shares is not None:
        to_the_point = shares["right"] + shares["fact"]
        found += [
            Bar("answers read: to the point", to_the_point, 0.9, True, "{:.0%}"),
            Bar("answers read: right", shares["right"], 0.6, True, "{:.0%}"),
            Bar("answers read: garbled", shares["garbled"], 0.0, False, "{:.0%}"),
        ]
    largest = max(figures["bytes"].values()) / 1e6
    return [*found, Bar("largest file, MB", largest, 95, False, "{:.1f}")]


def _language(figures: Mapping[str, Any]) -> list[Bar]:
    by_model = figures["bits_per_byte"]
    shipped, exact = by_model["shipped"], by_model["float32"]
    detail = f"{figures['records']} records; shipped {shipped:.3f}, float32 {exact:.3f}"
    if "base" in by_model:
        detail += f", before fine-tuning {by_model['base']:.3f}"
    return [
        Bar("bits per byte, more than in float32", shipped - exact, 0.02, False, "{:.3f}", detail)
    ]


def _answers(figures: Mapping[str, Any]) -> list[Bar]:
    count, ends, looping = figures["races"], figures["ends"], figures["loops"]
    of_ends, same = f"{ends} of {count}", figures["identical"]
    by_people = f"{looping} of {count}; of the reference responses {figures['reference_loops']}"
    certainty, median = figures["certainty"], figures["tokens"][1]
    return [
        Bar("largest probability of its tokens, mean", certainty, 0.78, True, "{:.2f}"),
        Bar("tokens of an answer, median", median, 60, True, "{:.0f}"),
        Bar("answers that end by themselves", ends / count, 0.9, True, "{:.1%}", of_ends),
        Bar("answers that loop", looping / count, 0.02, False, "{:.1%}", by_people),
        Bar("greedy texts identical", same / count, 1.0, True, "{:.1%}", f"{same} of {count}"),
    ]


def _drafts(races: Mapping[str, Any]) -> list[Bar]:
    """Of both drafts at their best K, and of the races as the page begins."""
    found = []
    fixed = {name: each for name, each in races.items() if not name.endswith("auto")}
    runs = {name: each["tokens_per_run"] for name, each in fixed.items() if name.startswith(_BLOCK)}
    if runs:
        best = max(runs, key=lambda name: runs[name])
        title = f"tokens a target pass, without a context, {best}"
        found.append(Bar(title, runs[best], _TOKENS_PER_RUN, True, "{:.2f}"))
    papers = {
        name: each
        for name, each in fixed.items()
        if name.startswith(_MODEL) and each["speedup"] is not None
    }
    if papers:
        best = max(papers, key=lambda name: papers[name]["speedup"][1])
        found.append(_speedup(f"without a context, {best}", papers[best], _PAPERS_WAY))
    if page := races.get(_PAGE):
        count = page["races"]
        detail = f"{page['slower']} of {count}"
        title = f"races slower, without a context, {_PAGE}"
        found.append(Bar(title, page["slower"] / count, _SLOWER, False, "{:.0%}", detail))
    return found


def _speedup(name: str, figures: Mapping[str, Any], bar: float) -> Bar:
    low, median, high = figures["speedup"]
    detail = f"quartiles {low:.2f} and {high:.2f}; races: {figures['races']}"
    return Bar(f"median speedup, {name}", median, bar, True, "{:.2f}", detail)


def table(found: Sequence[Bar]) -> str:
    """As Markdown."""
    lines = ["| figure | measured | bar | reached | |", "|---|---|---|---|---|"]
    for bar in found:
        sign = "≥" if bar.least else "≤"
        reached = "yes" if bar.reached else f"**no, by {bar.missed_by}**"
        measured, wanted = bar.form.format(bar.measured), bar.form.format(bar.bar)
        lines.append(f"| {bar.name} | {measured} | {sign} {wanted} | {reached} | {bar.detail} |")
    return "\n".join(lines)
