"""The verdict on a run, in words. Every figure is a property of the trace."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.trace.cost import figures
from pipeline.trace.metrics import (
    measured,
    more_cpu,
    not_compared,
    outcome,
    speedup_interval,
)
from pipeline.trace.record import Lane, Trace
from pipeline.trace.signatures import Signature, signatures
from pipeline.words import counted, percent

_REASONS = {  # of a loss, by `CostModel`'s fields
    "acceptance": "too few drafts are accepted (a = {} of those tested)",
    "draft": "drafting is too slow (c = {} target steps)",
    "verify": "verification is too expensive (v = {} target steps beyond the step itself)",
}
_INEXACT = (
    " With these settings, on this machine, rounding depends on the number of tokens in a forward "
    "pass, so texts may differ where two tokens are nearly tied."
)
_SETTINGS = (
    " With these settings rounding depends on the number of tokens in a forward pass; the default "
    "settings avoid that."
)
_ERRORS = 1.96  # standard errors, of a 95 % interval: a reason holds at its favourable end too
_WIDE = 1.5  # ratio of an interval's ends above which the interval is shown
_NONE = "–"
_ALIKE = "Same distribution"
_RACING = ("even", "Racing…", "per decoded token", ", so far")


def verdict(
    trace: Trace,
    where: str = "",
    earlier: Sequence[float] = (),
    found: Sequence[Signature] | None = None,
) -> dict[str, str]:
    """The fields of `verdict.html`, for a run that may be unfinished or have a single lane.

    Args:
        where: the label of a recorded run; "" for a live run.
        earlier: the speedups of the same race, run before on this machine.
        found: the signatures of a live run; None for those of the trace alone.
    """
    fast = trace.speculative
    tone, headline, label, now = _headline(trace, earlier)
    disturbed = _ended(trace) and _disturbed(trace)
    label = f"{label} · {where}" if where else label + now
    mark, claim, reason = _agreement(trace)
    proof = "How this was tested." if claim.startswith(_ALIKE) else ""
    acceptance = fast.acceptance_rate if fast else None
    efficiency = fast.block_efficiency if fast else None
    lanes = trace.lanes.values()
    return {
        "state": tone,
        "headline": headline,
        "headline_label": label,
        "passes": f"{' → '.join(str(len(lane.steps)) for lane in lanes)} passes",
        "rates": " → ".join(_rounded(lane.tokens_per_second) for lane in lanes),
        "acceptance": _NONE if acceptance is None else percent(acceptance),
        "counts": _counts(fast) if fast else "autoregressive decoding drafts nothing",
        "per_step": _NONE if efficiency is None else f"{efficiency:.1f}",
        "first": " → ".join(_milliseconds(lane.first_token_s) for lane in lanes),
        "why": _why(trace),
        "cost": _cost(trace),
        "again": "Measure again" if disturbed and not where else "",
        "mark": mark,
        "same": claim,
        "same_text": reason,
        "racing": "" if _ended(trace) else "yes",
        **_watch(signatures(trace) if found is None else found),
        "proof": proof,
    }


def _watch(found: Sequence[Signature]) -> dict[str, str]:
    """The names of the signatures, and what is known of them with what to do."""
    names = " ".join(f"{signature.title}." for signature in found)
    texts = " ".join(f"{_sentence(each.finding)} {_sentence(each.remedy)}" for each in found)
    alarm = found[0].name if found else ""
    return {"alarm": alarm, "signature": names, "signature_text": texts}


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def summary(trace: Trace) -> str:
    """The verdict in one short line, for the status."""
    if not trace.finished:
        return "Stopped"
    _, headline, *_ = _headline(trace, ())
    if trace.lossy:
        return f"{headline} · lossy"
    mark, *_ = _agreement(trace)
    if mark != "same":
        return headline
    return f"{headline} · identical text · {counted(trace.comparable_tokens, 'token')}"


def _headline(trace: Trace, earlier: Sequence[float]) -> tuple[str, str, str, str]:
    """The style, the text, its label, and an addition to the label for a live run."""
    if len(trace.lanes) == 1:
        ((name, lane),) = trace.lanes.items()
        rate = f"{_rounded(lane.tokens_per_second)} tok/s"
        return "even", rate, f"{name} decoding alone, with nothing to compare", ""
    missing = not_compared(trace)
    if missing:
        return ("even", "Not compared", missing, "") if _ended(trace) else _RACING
    speedup, each = trace.speedup or 1.0, "per decoded token"
    if trace.lossy:
        each += ", lossy"
    lengths = [len(lane.tokens) for lane in trace.lanes.values()]
    if trace.finished and len({*lengths}) > 1:
        each += f", of texts of {lengths[0]} and {lengths[1]} tokens"
    now = ", measured on this machine just now" if trace.finished else ", so far"
    if trace.finished and earlier:
        races = [*earlier, speedup]
        now = f"; {len(races)} runs of this race: {min(races):.2f}× to {max(races):.2f}×"
    return *_outcome(trace, speedup, each), now


def _ended(trace: Trace) -> bool:
    return all(lane.finish is not None for lane in trace.lanes.values())


def _outcome(trace: Trace, speedup: float, each: str) -> tuple[str, str, str]:
    """The style, the text and its label: an interval where the run carries no single figure."""
    tone, (low, high) = outcome(speedup), speedup_interval(trace) or (speedup, speedup)
    if (outcome(low), outcome(high)) == ("loss", "win"):
        ends = f"{low:.1f}× to {high:.1f}× as fast {each}" if low else f"{each}, of too few steps"
        return "even", "Too close to call", ends
    shown = f"{low:.1f}–{high:.1f}×" if high > _WIDE * low else f"{speedup:.1f}×"
    told = {"win": f"{shown} faster", "loss": f"{shown} — slower", "even": "1.0× — even"}
    return tone, told[tone], each


def _counts(lane: Lane) -> str:
    """The counts behind the acceptance rate. One round without a draft is normal: the last token of
    the budget is never drafted.
    """
    counts = f"of tested drafts accepted ({lane.accepted} of {lane.tested})"
    if lane.remembered:
        counts += f"; {lane.remembered} of these remembered from earlier answers"
    if lane.drafted_yield is not None:
        counts += f"; {percent(lane.drafted_yield)} of all drafts"
    if lane.undrafted > 1:
        counts += f"; {lane.undrafted} of {len(lane.steps)} rounds without a draft"
    return counts


def _why(trace: Trace) -> str:
    """Steps that were interrupted, or else the main reason of a loss, as far as the run carries it;
    empty while a lane runs.
    """
    return (_disturbed(trace) or _loss(trace)).strip() if _ended(trace) else ""


def _cost(trace: Trace) -> str:
    """What a token of each lane costs beside time, as far as that is known."""
    known = figures([*trace.costs.values()])
    more = f" Speculation takes {ratio:.2f}× the CPU time." if (ratio := more_cpu(trace)) else ""
    return f"Per token: {known}.{more}" if known else ""


def _disturbed(trace: Trace) -> str:
    """Says that steps were interrupted, which the speedup leaves out."""
    count = sum(lane.disturbed for lane in trace.lanes.values())
    steps = sum(len(lane.steps) for lane in trace.lanes.values())
    if not count:
        return ""
    return (
        f"The machine was busy: {count} of {steps} steps took over three times the median of "
        "their kind, and count as that. "
    )


def _loss(trace: Trace) -> str:
    model = measured(trace)
    if model is None or trace.speedup is None or outcome(trace.speedup) != "loss":
        return ""
    if model.speedup > 1:
        return (
            f"By the medians of its steps it would be {model.speedup:.2f}× as fast: this run is "
            "too short or too uneven to say why it lost."
        )
    favoured = measured(trace, _ERRORS)
    if favoured is None or favoured.speedup > 1:
        return "This run is too short or too uneven to say why it lost."
    part = model.worst_part()
    value: float = getattr(model, part)
    shown = percent(value) if part == "acceptance" else f"{value:.2f}"
    return f"Main reason: {_REASONS[part].format(shown)}."


def _agreement(trace: Trace) -> tuple[str, str, str]:
    """Whether the texts agree: a mark, a claim and its reason."""
    if len(trace.lanes) == 1:
        return (
            "alone",
            "One method only.",
            "Run both to compare their speed and their texts.",
        )
    if trace.lossy:
        return (
            "differs",
            "Lossy, by choice.",
            "Typical acceptance takes drafts that the target finds plausible: the text follows "
            "another distribution than the target’s.",
        )
    if trace.forgets:
        return (
            "alike",
            "Not exact.",
            f"With this cache ({trace.kv_cache}) the target does not attend to all the text before "
            "a token, so its text may differ from that of an exact cache, and between the methods.",
        )
    agreeing, comparable = trace.agreeing_tokens or 0, trace.comparable_tokens
    same = trace.finished and {len(lane.tokens) for lane in trace.lanes.values()} == {agreeing}
    if not trace.deterministic:
        return (
            "alike",
            f"{_ALIKE}, and here the same text." if same else f"{_ALIKE}.",
            "With sampling the texts may differ by chance; at temperature 0 they are identical."
            + _rounding(trace),
        )
    why = "Greedy" if trace.greedy else "These settings leave one possible token at each place"
    if not comparable:
        return "alone", "Nothing to compare.", f"{why}: the texts are compared token by token."
    if same:
        return "same", "Identical text.", f"{why}: {_all(agreeing)}.{_rounding(trace)}"
    if agreeing == comparable and not trace.finished:
        return "same", "Identical so far.", f"{why}: {_all(agreeing)} so far."
    return "differs", "Not identical.", f"{_first(agreeing)}{_rounding(trace) or _SETTINGS}"


def _rounding(trace: Trace) -> str:
    """Says that this machine does not keep what the claim rests on, where that was found."""
    return _INEXACT if trace.pair.get("exact_widths") is False else ""


def _all(tokens: int) -> str:
    return "the only token agrees" if tokens == 1 else f"all {tokens} tokens agree"


def _first(tokens: int) -> str:
    """How far the texts agree before they differ."""
    if not tokens:
        return "The texts differ from the first token on."
    agree = "token agrees" if tokens == 1 else f"{tokens} tokens agree"
    return f"The first {agree}, then the texts differ."


def _rounded(value: float | None) -> str:
    return _NONE if value is None else f"{value:.0f}"


def _milliseconds(seconds: float | None) -> str:
    return _NONE if seconds is None else f"{1000 * seconds:.0f}"
