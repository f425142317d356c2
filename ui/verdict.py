"""What a trace comes to, in words: the figures that the page shows first."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.trace import Lane, Trace

_TIE = 0.05  # a difference that a noisy machine makes by itself


@dataclass(frozen=True, slots=True)
class Figure:
    value: str
    label: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """`mood` is "win", "lose" or "even"."""

    mood: str
    figures: tuple[Figure, ...]
    note: str


def verdict(trace: Trace) -> Verdict:
    """The verdict of a trace, finished or not; a figure that cannot be known is a dash."""
    slow, fast = trace.autoregressive, trace.speculative
    speedup = trace.speedup
    mood = "even"
    headline = Figure("–", "per decoded token, both measured here just now")
    if speedup is not None:
        mood = "even" if abs(speedup - 1) < _TIE else "win" if speedup > 1 else "lose"
        words = {"win": "faster", "lose": "— slower", "even": "— a tie"}
        headline = Figure(f"{speedup:.2f}× {words[mood]}", headline.label)
    return Verdict(
        mood,
        (
            headline,
            Figure(f"{_rate(slow)} → {_rate(fast)}", "tokens per second, prefill apart"),
            _acceptance(fast),
            Figure(_number(fast.block_efficiency if fast else None), "tokens per target run"),
        ),
        _note(trace, mood),
    )


def _acceptance(lane: Lane | None) -> Figure:
    if lane is None or lane.acceptance_rate is None:
        return Figure("–", "of tested drafts accepted")
    counts = f"({lane.accepted} of {lane.tested})"
    return Figure(f"{lane.acceptance_rate:.0%}", f"of tested drafts accepted {counts}")


def _note(trace: Trace, mood: str) -> str:
    if not trace.finished:
        return "Stopped: the figures cover what was made until then."
    lost = " Speculation loses here: too few drafts pass to pay for drafting them."
    tail = lost if mood == "lose" else ""
    if trace.identical:
        return f"Identical output. Greedy: all {trace.agreeing_tokens} tokens agree.{tail}"
    if trace.identical is False:
        return f"Outputs differ after {trace.agreeing_tokens} tokens. This should not happen.{tail}"
    return (
        "Same distribution. Sampled: the texts differ as two draws do; the tests check that "
        f"both follow the target's probabilities.{tail}"
    )


def _rate(lane: Lane | None) -> str:
    return "–" if lane is None or lane.tokens_per_second is None else f"{lane.tokens_per_second:.0f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
