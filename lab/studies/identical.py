"""The target as its own draft: all drafts are accepted, and the text does not change.

With unquantised weights, so that nothing but the method is tested. It separates what drafting gains
from what a draft that differs loses: every round emits K + 1 tokens, and still it cannot be faster
than autoregression by much, since a drafted token costs as much as a step.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import partial

from lab.answers import Answers, Condition, answered, tabulated
from lab.prompts import KINDS
from lab.result import Chart, Column, Result, Row, Rows, even
from lab.study import Setup, Study
from lab.weights import in_precision
from pipeline.decoding.drafters.model import MODEL
from pipeline.decoding.economics import CostModel, Costs
from pipeline.request import Request
from pipeline.words import percent

LENGTHS = (1, 2, 4)
_MAX_NEW_TOKENS = 40
_PROMPTS = (KINDS["open question"][0], KINDS["story"][1], KINDS["summary"][0])
_REPEATS = 2
_AUTOREGRESSIVE = "autoregressive"


def _measure(setup: Setup) -> Generator[Result, None, None]:
    model = yield from in_precision(setup.choice.pair.target, "f32", setup.choice.store)
    pair = replace(setup.choice.pair, target=model, draft=model, block=None)
    dolly = yield from setup.other(pair)
    requests = [
        Request(*prompt, max_new_tokens=_MAX_NEW_TOKENS, drafter=MODEL.name) for prompt in _PROMPTS
    ]
    yield Result(doing="measuring the costs of forward passes")
    costs = MODEL.costs(dolly.models_for(requests[0]).costs)
    conditions = [
        Condition(_AUTOREGRESSIVE, dolly, "autoregressive"),
        *(Condition(str(k), dolly, changes={"draft_length": k}) for k in LENGTHS),
    ]
    answers = answered(conditions, requests, setup.repeats or _REPEATS)
    yield from tabulated(answers, partial(_rows, costs), dolly.about)


def _rows(costs: Costs, answers: Answers) -> Iterator[Row]:
    for k in LENGTHS:
        speedup = answers.speedup(str(k), _AUTOREGRESSIVE)
        if speedup is None:
            continue
        # The last round of an answer is cut off at the budget, or at the end key.
        rounds = [made for lane in answers.lanes(str(k)) for made in lane.emitted[:-1]]
        predicted = CostModel(1.0, costs.in_steps, k).speedup
        yield {
            "length": k,
            "acceptance": answers.acceptance_rate(str(k)),
            "block": sum(map(len, rounds)) / len(rounds) if rounds else None,
            "identical": answers.identical(str(k), _AUTOREGRESSIVE),
            "speedup": speedup,
            "predicted": predicted,
            "error": speedup / predicted - 1,
        }


def _conclude(rows: Rows) -> str:
    exact = all(
        row["acceptance"] == row["identical"] == 1 and row["block"] == row["length"] + 1
        for row in rows
    )
    lengths, speedups = (
        ", ".join(each)
        for each in zip(
            *((str(row["length"]), f"{row['speedup']:.2f}×") for row in rows), strict=True
        )
    )
    worst = max(abs(row["error"]) for row in rows)
    proof = "Every draft is accepted, every round emits K + 1 tokens and every text is identical"
    return (
        f"{proof if exact else 'A draft is rejected or a text differs, which must not happen'}; "
        f"at K = {lengths} the speed is {speedups} autoregression’s, within {percent(worst)} of "
        "what the costs of forward passes predict."
    )


STUDY = Study(
    name="identical",
    title="The target as its own draft",
    question="If draft and target are the same model, is every draft accepted and the text the "
    "same, and is it as fast as the cost model predicts?",
    needs="memory for the target twice in float32; its weights are unpacked once",
    seconds=60,
    columns=(
        Column("length", "K", digits=0),
        Column("acceptance", "Accepted of tested", "%", 0),
        Column("block", "Tokens per whole round"),
        Column("identical", "Identical texts", "%", 1),
        Column("speedup", "Measured speedup", "×"),
        Column("predicted", "Predicted speedup", "×"),
        Column("error", "Measured over predicted", "%", 1),
    ),
    chart=Chart(
        kind="bars",
        x="length",
        y=("speedup", "predicted"),
        axis="speedup, ×",
        level=even,
        reading="Predicted for acceptance 1, from the costs of forward passes measured before. The "
        "dashed line is autoregression.",
    ),
    measure=_measure,
    conclude=_conclude,
)
