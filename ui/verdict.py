"""What a run showed, in words. Every figure is the trace's own."""

from __future__ import annotations

from pipeline.decoding.economics import CostModel
from pipeline.runtime.kv_cache.registry import POLICIES
from pipeline.trace.metrics import measured, outcome
from pipeline.trace.record import Lane, Trace
from ui.tabs.acceptance import LENGTHS

_BLAMED = {  # by `CostModel`'s fields
    "acceptance": "the draft is too often wrong: a = {:.2f} of its tested tokens passed",
    "draft": "the draft is too slow: drafting a token takes c = {:.2f} of a target step",
    "verify": "verification is too dear: it takes v = {:.2f} of a step beyond the step itself",
}
_NONE = "–"


def verdict(trace: Trace, where: str = "") -> dict[str, str]:
    """The fields of `verdict.html`; works while the run is under way, and for one lane alone.

    Args:
        where: and when it was measured, if that is not here and now.
    """
    fast = trace.speculative
    tone, headline, label, now = _headline(trace)
    label = f"{label} · {where}" if where else label + now
    mark, strong, text = _sameness(trace)
    acceptance = fast.acceptance_rate if fast else None
    efficiency = fast.block_efficiency if fast else None
    lanes = trace.lanes.values()
    return {
        "state": tone,
        "headline": headline,
        "headline_label": label,
        "rates": " → ".join(_rounded(lane.tokens_per_second) for lane in lanes),
        "acceptance": _percent(acceptance),
        "counts": _counts(fast) if fast else "nothing is drafted in this lane",
        "per_run": _NONE if efficiency is None else f"{efficiency:.1f}",
        "first": " → ".join(_milliseconds(lane.first_token_s) for lane in lanes),
        "why": _why(trace),
        "mark": mark,
        "same": strong,
        "same_text": text,
    }


def summary(trace: Trace) -> str:
    """The verdict in one short line, for the status."""
    if not trace.finished:
        return "Stopped"
    outcome = _headline(trace)[1].removesuffix(" here")
    return f"{outcome} · identical output" if trace.identical else outcome


def _headline(trace: Trace) -> tuple[str, str, str, str]:
    """Its tone, its words, what they are about, and where that is known from if it was just now."""
    if len(trace.lanes) == 1:
        ((name, lane),) = trace.lanes.items()
        rate = f"{_rounded(lane.tokens_per_second)} tok/s"
        return "even", rate, f"{name} alone: nothing to compare it with", ""
    if trace.speedup is None and _ended(trace):
        return "even", "Not compared", "a lane ended before it had decoded a token", ""
    now = ", both measured on this machine just now" if trace.finished else ", so far"
    return *_outcome(trace.speedup), "per decoded token", now


def _ended(trace: Trace) -> bool:
    return all(lane.finish is not None for lane in trace.lanes.values())


def _outcome(speedup: float | None) -> tuple[str, str]:
    if speedup is None:
        return "even", "Racing…"
    tone = outcome(speedup)
    return tone, {
        "win": f"{speedup:.1f}× faster",
        "loss": f"{speedup:.1f}× — speculation loses here",
        "even": "1.0× — no difference here",
    }[tone]


def _counts(lane: Lane) -> str:
    """What the acceptance rests on. The last token of a budget is never drafted for: no news."""
    counts = f"of tested drafts accepted ({lane.accepted} of {lane.tested})"
    if lane.drafted_yield is not None:
        counts += f"; {_percent(lane.drafted_yield)} of all that was drafted"
    if lane.undrafted > 1:
        counts += f"; {lane.undrafted} of {len(lane.steps)} rounds drafted nothing"
    return counts


def _why(trace: Trace) -> str:
    """Why it won or lost, by the cost model; nothing while a lane still runs."""
    if not _ended(trace):
        return ""
    if len(trace.lanes) == 1:
        return "Break-even and the best draft length take both lanes, on the same machine."
    model = measured(trace)
    if model is None:
        missing = "No draft was tested"
        if any(not lane.steps for lane in trace.lanes.values()):
            missing = "A lane ended before its first target run"
        return f"{missing}, so nothing is known of what drafting would gain."
    lost = trace.speedup is not None and outcome(trace.speedup) == "loss"
    return f"{_blame(model) if lost else ''}{_thresholds(model)}"


def _blame(model: CostModel) -> str:
    part = model.worst_part()
    return f"It lost mostly because {_BLAMED[part].format(getattr(model, part))}. "


def _thresholds(model: CostModel) -> str:
    even, best = model.break_even, model.best_length(LENGTHS)
    breaks = f"Break-even acceptance here is {_percent(even)}"
    if even is None:
        breaks = "No acceptance would pay here"
    return (
        f"{breaks} at K = {model.length}; the best draft length is {best or '0, to draft nothing'} "
        f"(a = {model.acceptance:.2f}, c = {model.draft:.2f}, v = {model.verify:.2f}, measured in "
        f"this run; v is taken as at K = {model.length})."
    )


def _sameness(trace: Trace) -> tuple[str, str, str]:
    """Whether speculation changed the text: a mark, a claim and its reason."""
    if len(trace.lanes) == 1:
        return (
            "alone",
            "One lane only.",
            "Run both to see how much faster speculation is, and whether the text stays the same.",
        )
    agreeing = trace.agreeing_tokens or 0
    if trace.kv_cache in POLICIES and not POLICIES[trace.kv_cache].exact:
        return (
            "alike",
            "Not exact.",
            f"With this cache ({trace.kv_cache}) a token is not chosen from the whole text before "
            "it, so the text may differ from the target’s own, and from lane to lane.",
        )
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
    comparable = trace.comparable_tokens
    if not comparable:
        return (
            "alone",
            "Nothing to compare.",
            "Greedy: both texts are to agree, token for token.",
        )
    return (
        "same" if agreeing == comparable else "differs",
        "Identical so far." if agreeing == comparable else "Not identical.",
        f"Greedy: {agreeing} of the {comparable} tokens that both have made agree.",
    )


def _rounded(value: float | None) -> str:
    return _NONE if value is None else f"{value:.0f}"


def _milliseconds(seconds: float | None) -> str:
    return _NONE if seconds is None else f"{1000 * seconds:.0f}"


def _percent(rate: float | None) -> str:
    return _NONE if rate is None else f"{100 * rate:.0f} %"
