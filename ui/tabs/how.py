"""Explains speculative decoding with the figures of the run and one of its rejected tokens."""

from __future__ import annotations

from functools import cache
from typing import Any

from pipeline.decoding.economics import CostModel
from pipeline.decoding.events import SPECULATIVE, Candidates, Origin
from pipeline.decoding.verification.typical import DELTA, EPSILON
from pipeline.trace.explanation import explain, named, probabilities, probability
from pipeline.trace.metrics import TESTED, measured, residual
from pipeline.trace.record import Lane, StepRecord, Trace
from pipeline.trace.signatures import KINDS
from pipeline.words import percent
from ui.laboratory import last_result
from ui.plots.certificate import CERTIFICATE
from ui.plots.figure import Json
from ui.plots.table import Table
from ui.tabs.acceptance import thresholds
from ui.tabs.tab import FIELDS_AND_PLOTS, RunTab

_BEFORE = 60  # characters of the text before the example


def how(trace: Trace) -> Json:
    """Fields, the table of candidates, and the kind of the example: a `token`, a `block`, or
    `none`.
    """
    lane = trace.speculative
    if trace.verifies_blocks:  # no token was rejected by itself
        step = _divided(lane) if lane else None
        example = _block_example(trace, step) if step else {}
    else:
        step = rejection(lane) if lane else None
        example = _example(trace, step) if step else {}
    constants = {"epsilon": f"{EPSILON:g}", "delta": f"{DELTA:g}"}
    return {"state": "none", **example, **_cost_fields(trace), **constants}


@cache
def paper() -> Json | None:
    """The paper's table with our figures, and the machine of ours; None without results."""
    results = last_result("paper")
    if results is None:
        return None
    columns = ("New tokens", "Paper: autoregressive s", "speculative s", "speedup")
    ours = ("This project: autoregressive s", "speculative s", "speedup", "draft model’s speedup")
    found: list[dict[str, Any]] = [dict(row) for row in results.rows]
    measured = {
        row["new_tokens"]: row for row in found if row["records"] == "held out" and not row["ends"]
    }
    rows = []
    for printed in (row for row in found if row["records"] == "the paper"):
        own = measured[printed["new_tokens"]]
        rows.append(
            [
                str(printed["new_tokens"]),
                *(f"{printed[name]:.2f}" for name in ("slow_s", "model_s")),
                f"{printed['model_x']:.2f}×",
                *(f"{own[name]:.3f}" for name in ("slow_s", "page_s")),
                *(f"{own[name]:.2f}×" for name in ("page_x", "model_x")),
            ]
        )
    (count,) = {row["count"] for row in measured.values()}
    where = (
        "Paper: Dolly v2 12B with 3B as its draft, on a server. This project: the embedded pair on "
        f"{count} held-out instructions, prefill included; speculative is what the page "
        "begins with, and the last column the paper’s way, a draft model with a fixed length. On "
        f"{results.machine}. Models and machines differ, so compare the speedups, not the seconds."
    )
    return {"columns": (*columns, *ours), "rows": rows, "where": where}


def rejection(lane: Lane) -> StepRecord | None:
    """The step of the lane's best example of a rejected token that another replaces. Preferred
    are steps with recorded candidates, with a random number, and with text before them.
    """
    resampled = {token.step for token in lane.tokens if token.origin is Origin.RESAMPLED}

    def quality(step: StepRecord) -> tuple[bool, bool, bool]:
        random = step.uniform[step.accepted] is not None
        return _has_candidates(step, step.accepted), random, step.index > 0

    rejected = (step for step in lane.steps if step.tested > step.accepted)
    replaced = (step for step in rejected if step.index in resampled)
    return max(replaced, key=quality, default=None)


def _divided(lane: Lane) -> StepRecord | None:
    """The lane's longest draft that block verification accepted in part, with text before it."""
    divided = (s for s in lane.steps if 0 < s.accepted < len(s.drafted) and not s.copied)
    return max(divided, key=lambda step: (len(step.drafted), step.index > 0), default=None)


def _block_example(trace: Trace, step: StepRecord) -> Json:
    """The test of a whole draft, token by token."""
    explained = explain(trace, SPECULATIVE, step)
    tested = [token for token in explained.tokens if token.facts and not token.replaces]
    columns = list(dict.fromkeys(name for token in tested for name in token.facts))
    rows = [
        [token.name, token.state, *(token.facts.get(name, "") for name in columns)]
        for token in tested
    ]
    return {
        "state": "block",
        "where": f"step {step.index + 1}",
        "what": explained.verification,
        "candidates": {"columns": ["Token", "State", *columns], "rows": rows},
    }


def _has_candidates(step: StepRecord, place: int) -> bool:
    return place < len(step.draft_top) and place < len(step.target_top)


def _example(trace: Trace, step: StepRecord) -> Json:
    lane = trace.speculative
    assert lane is not None  # the step is one of its own
    place, drafted = step.accepted, step.drafted[step.accepted]
    explained = explain(trace, SPECULATIVE, step).tokens[-1]
    before = "".join(t.text for t in lane.tokens if t.step < step.index)
    before += "".join(t.text for t in lane.emitted[step.index][:place])
    example: Json = {
        "state": "token",
        "before": ("…" if len(before) > _BEFORE else "") + before[-_BEFORE:],
        "drafted": explained.replaces,
        "chosen": explained.name,
        "where": f"step {step.index + 1}, position {place + 1} of the draft",
        "what": explained.sentence,
    }
    if not _has_candidates(step, place):
        return example
    example["note"] = f"The five most likely tokens of each model here. {probabilities(trace)}"
    target, draft = step.target_top[place], step.draft_top[place]
    if trace.greedy or trace.lossy:
        table = _agreement(trace, target, draft)
    else:
        more = "One that is not recorded counts as 0; shares are of these tokens alone."
        example["note"] += f" {more}"
        table = _residual(
            trace,
            dict(target) | {drafted: step.target_prob[place]},
            dict(draft) | {drafted: step.draft_prob[place]},
        )
    return {**example, "candidates": {"columns": table.columns, "rows": table.rows}}


def _agreement(trace: Trace, target: Candidates, draft: Candidates) -> Table:
    """The most likely tokens of both models, by rank."""
    rows = [
        [str(rank), named(trace, a), probability(p), named(trace, b), probability(q)]
        for rank, ((a, p), (b, q)) in enumerate(zip(target, draft, strict=False), start=1)
    ]
    return Table(("Rank", "Target", "probability", "Draft", "probability"), rows)


def _residual(trace: Trace, target: dict[int, float], draft: dict[int, float]) -> Table:
    """The residual distribution over the tokens with recorded probabilities."""
    rows = [
        [
            named(trace, each.token),
            probability(each.target),
            probability(each.draft),
            probability(each.residual),
            "" if each.share is None else percent(each.share),
        ]
        for each in residual(target, draft)
    ]
    return Table(("Token", "Target p", "Draft q", "Residual", "Share"), rows)


def _cost_fields(trace: Trace) -> dict[str, str]:
    model = measured(trace)
    if model is None:
        missing = f"both methods, and {TESTED} drafted tokens that were tested"
        return {"cost": f"The cost model needs {missing}."}
    tokens = model.length + 1
    return {
        "pass": f"In this run, one over {tokens} tokens took {1 + model.verify:.2f} times as long "
        f"as one over a single token, instead of {tokens} times.",
        "acceptance": f"a = {percent(model.acceptance)}",
        "draft": f"c = {model.draft:.2f}",
        "verify": f"v = {model.verify:.2f}",
        "length": f"K = {model.length}",
        "cost": _prediction(model, trace),
    }


def _prediction(model: CostModel, trace: Trace) -> str:
    measured_speedup = "" if trace.speedup is None else f"; measured: {trace.speedup:.2f}×"
    return (
        f"By the acceptance at each place of a draft, a round is expected to emit "
        f"{model.block_efficiency:.2f} tokens in the time of "
        f"{model.cost:.2f} target steps, a speedup of {model.speedup:.2f}×{measured_speedup}. "
        f"{thresholds(model, trace.speedup)}"
    )


def failures() -> Json:
    """The table of failure signatures."""
    columns = ("Signature", "Named when", "What to do", "See it")
    return {"columns": columns, "rows": [[*kind] for kind in KINDS.values()]}


def _details(trace: Trace) -> Json:
    tables = {"paper": paper(), "signatures": failures()}
    return {**how(trace), **tables, "machines": (paper() or {}).get("where", "")}


TAB = RunTab(
    name="how",
    title="How it works",
    plots=(CERTIFICATE,),
    template="how/how.html",
    scripts=FIELDS_AND_PLOTS,
    details=_details,
)
