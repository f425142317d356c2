"""The bars that the pair was to reach, beside what was measured. Figures only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.table import markdown_table

_BLOCK, _MODEL, _PAGE = "greedy, K = ", "draft model, greedy, K = ", "hybrid, greedy, K = auto"
_SPEEDUPS = {_PAGE: 1.9, "sampled, K = auto": 1.5, "hybrid, K = auto": 2.3}


@dataclass(frozen=True, slots=True)
class Bar:
    """One figure."""

    name: str
    measured: float
    bar: float
    least: bool  # whether it must be at least `bar`, or at most
    form: str  # how both are written
    detail: str = ""  # what the figure is made of

    @property
    def reached(self) -> bool:
        return self.measured >= self.bar if self.least else self.measured <= self.bar

    @property
    def missed_by(self) -> str:
        """As text, shares in percentage points; empty if it was reached."""
        gap = self.form.format(abs(self.measured - self.bar))
        return "" if self.reached else gap.replace("%", " points")


def bars(figures: Mapping[str, Any], shares: Mapping[str, float] | None = None) -> list[Bar]:
    """All of them, those of the answers if they were read.

    Args:
        figures: as evaluation.json holds them.
        shares: of the answers read, by mark.
    """
    by_model, answers = figures["language"]["bits_per_byte"], figures["answers"]
    lost, count = by_model["shipped"] - by_model["float32"], answers["races"]
    bits = ", ".join(f"{name} {value:.3f}" for name, value in by_model.items())
    looping = f"{answers['loops']} of {count}; of references {answers['reference_loops']}"
    ends, same = (f"{answers[name]} of {count}" for name in ("ends", "identical"))
    found = [
        Bar("bits per byte, more than in float32", lost, 0.02, False, "{:.3f}", bits),
        Bar("largest probability of its tokens, mean", answers["certainty"], 0.78, True, "{:.2f}"),
        Bar("tokens of an answer, median", answers["tokens"][1], 60, True, "{:.0f}"),
        Bar("answers that end by themselves", answers["ends"] / count, 0.9, True, "{:.1%}", ends),
        Bar("answers that loop", answers["loops"] / count, 0.02, False, "{:.1%}", looping),
        Bar("greedy texts identical", answers["identical"] / count, 1.0, True, "{:.1%}", same),
    ]
    for part, title in (("open", "without a context"), ("context", "with a context")):
        for setting, races in figures[part].items():
            if setting in _SPEEDUPS and races["speedup"] is not None:
                found.append(_speedup(f"{title}, {setting}", races, _SPEEDUPS[setting]))
    found += _drafts(figures["open"])
    if shares is not None:
        to_the_point = shares["right"] + shares["fact"]
        found += [
            Bar("answers read: to the point", to_the_point, 0.9, True, "{:.0%}"),
            Bar("answers read: right", shares["right"], 0.6, True, "{:.0%}"),
            Bar("answers read: garbled", shares["garbled"], 0.0, False, "{:.0%}"),
        ]
    largest = max(figures["bytes"].values()) / 1e6
    return [*found, Bar("largest file, MB", largest, 95, False, "{:.1f}")]


def _drafts(races: Mapping[str, Any]) -> list[Bar]:
    """Of both drafts at their best K, and of the races as the page begins."""
    fixed = {name: each for name, each in races.items() if not name.endswith("auto")}
    blocks = [name for name in fixed if name.startswith(_BLOCK)]
    best = max(blocks, key=lambda name: fixed[name]["tokens_per_run"])
    title = f"tokens a target pass, without a context, {best}"
    found = [Bar(title, fixed[best]["tokens_per_run"], 2.5, True, "{:.2f}")]
    models = [name for name in fixed if name.startswith(_MODEL) and fixed[name]["speedup"]]
    if models:
        best = max(models, key=lambda name: fixed[name]["speedup"][1])
        found.append(_speedup(f"without a context, {best}", fixed[best], 1.3))
    slower, count = races[_PAGE]["slower"], races[_PAGE]["races"]
    title, detail = f"races slower, without a context, {_PAGE}", f"{slower} of {count}"
    return [*found, Bar(title, slower / count, 0.02, False, "{:.0%}", detail)]


def _speedup(name: str, figures: Mapping[str, Any], bar: float) -> Bar:
    low, median, high = figures["speedup"]
    detail = f"quartiles {low:.2f} and {high:.2f}; races: {figures['races']}"
    return Bar(f"median speedup, {name}", median, bar, True, "{:.2f}", detail)


def as_table(found: Sequence[Bar]) -> str:
    """As Markdown."""
    rows = []
    for bar in found:
        measured, wanted = bar.form.format(bar.measured), bar.form.format(bar.bar)
        reached = "yes" if bar.reached else f"**no, by {bar.missed_by}**"
        rows.append([bar.name, measured, f"{'≥' if bar.least else '≤'} {wanted}", reached])
        rows[-1].append(bar.detail)
    return markdown_table(["figure", "measured", "bar", "reached", ""], rows)
