"""What a race showed, in words. Every figure is the trace's own."""

from __future__ import annotations

from pipeline.trace import Lane, Trace

_EVEN = 0.05  # speedups this close to 1 are no difference


def verdict(trace: Trace) -> dict[str, str]:
    """The fields of `verdict.html`; works while the race still runs."""
    slow, fast = trace.autoregressive, trace.speculative
    assert slow is not None  # a verdict is about two lanes
    assert fast is not None
    tone, headline = _headline(trace.speedup)
    when = "both measured on this machine just now" if trace.finished else "so far"
    mark, strong, text = _sameness(trace)
    acceptance = fast.acceptance_rate
    return {
        "state": tone,
        "headline": headline,
        "headline_label": f"per decoded token, {when}",
        "rates": f"{_rate(slow.tokens_per_second)} → {_rate(fast.tokens_per_second)}",
        "acceptance": "–" if acceptance is None else f"{100 * acceptance:.0f} %",
        "counts": _counts(fast),
        "per_run": "–" if fast.block_efficiency is None else f"{fast.block_efficiency:.1f}",
        "mark": mark,
        "same": strong,
        "same_text": text,
    }


def summary(trace: Trace) -> str:
    """The verdict in one short line, for the status."""
    if not trace.finished:
        return "Stopped"
    outcome = _headline(trace.speedup)[1].removesuffix(" here")
    return f"{outcome} · identical output" if trace.identical else outcome


def _headline(speedup: float | None) -> tuple[str, str]:
    """Its tone and its words."""
    if speedup is None:
        return "even", "Racing…"
    if speedup > 1 + _EVEN:
        return "win", f"{speedup:.1f}× faster"
    if speedup < 1 - _EVEN:
        return "loss", f"{speedup:.1f}× — speculation loses here"
    return "even", "1.0× — no difference here"


def _counts(lane: Lane) -> str:
    """What the acceptance rests on. The last token of a budget is never drafted for: no news."""
    counts = f"of tested drafts accepted ({lane.accepted} of {lane.tested})"
    if lane.undrafted > 1:
        counts += f"; {lane.undrafted} of {len(lane.steps)} rounds drafted nothing"
    return counts


def _sameness(trace: Trace) -> tuple[str, str, str]:
    """Whether speculation changed the text: a mark, a claim and its reason."""
    agreeing = trace.agreeing_tokens or 0
    if not trace.greedy:
        return (
            "alike",
            "Same distribution.",
            "Sampling: the two texts differ by chance, and every token is still drawn from the "
            "target’s own distribution. Temperature 0 makes them identical.",
        )
    if trace.identical:
        return "same", "Identical output.", f"Greedy: all {agreeing} tokens agree."
    if trace.identical is False:
        return (
            "differs",
            "Not identical.",
            f"The first {agreeing} tokens agree, then the texts part. With these settings rounding "
            "depends on how many tokens are run at once; the default settings avoid that.",
        )
    shorter = min(len(lane.tokens) for lane in trace.lanes.values())
    return (
        "same" if agreeing == shorter else "differs",
        "Identical so far." if agreeing == shorter else "Not identical.",
        f"Greedy: {agreeing} of the {shorter} tokens that both have made agree.",
    )


def _rate(tokens_per_second: float | None) -> str:
    return "–" if tokens_per_second is None else f"{tokens_per_second:.0f}"
