"""Drafts that cannot help: what the adaptive draft length loses before it gives up."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

from lab.answers import Answers, Condition, answered, tabulated
from lab.draft_lengths import AUTO, NONE
from lab.prompts import KINDS
from lab.result import Chart, Column, Result, Row, Rows, even, number
from lab.shapes import SHAPES, model_folder
from lab.study import Setup, Study
from pipeline.decoding.drafters.model import MODEL
from pipeline.models.pairs import Model
from pipeline.request import Request

_MAX_NEW_TOKENS = 100
_REPEATS = 12
_RANDOM, _SAME = "random weights", "the target itself"


def _measure(setup: Setup) -> Generator[Result, None, None]:
    target, store = setup.choice.pair.target, setup.choice.store
    yield Result(doing="making a model with random weights")
    tokenizer = store.folder(target) / "tokenizer.json"
    random = Model(str(model_folder(SHAPES["draft"], "int8", tokenizer, store)))
    conditions = []
    for name, draft in ((_RANDOM, random), (_SAME, target)):
        dolly = yield from setup.other(replace(setup.choice.pair, draft=draft, block=None))
        conditions += [
            Condition(f"{name}, {NONE}", dolly, "autoregressive"),
            Condition(f"{name}, {AUTO}", dolly, changes={"draft_length": AUTO}),
        ]
    requests = [
        Request(*prompt, max_new_tokens=_MAX_NEW_TOKENS, drafter=MODEL.name)
        for prompt in KINDS["open question"]
    ]
    answers = answered(conditions, requests, setup.repeats or _REPEATS)
    yield from tabulated(answers, _rows, conditions[0].dolly.about)


def _rows(answers: Answers) -> Iterator[Row]:
    for name in (_RANDOM, _SAME):
        slow, fast = (f"{name}, {length}" for length in (NONE, AUTO))
        times = [answers.seconds_per_token(each) for each in (slow, fast)]
        if None not in times:
            yield {
                "draft": name,
                "slow": 1e3 * number(times[0]),
                "fast": 1e3 * number(times[1]),
                "speedup": answers.speedup(fast, slow),
                "acceptance": answers.acceptance_rate(fast),
                "block": answers.block_efficiency(fast),
            }


def _conclude(rows: Rows) -> str:
    each = {row["draft"]: number(row["speedup"]) for row in rows}
    return (
        f"auto runs at {each[_RANDOM]:.2f}× autoregression with a draft of random weights, and at "
        f"{each[_SAME]:.2f}× with the target as its own draft."
    )


STUDY = Study(
    name="useless",
    title="A draft that cannot help",
    question="How much time does auto lose with a draft that is never right, or that costs as much "
    "as the target?",
    needs="PyTorch, to make a model with random weights",
    seconds=240,
    columns=(
        Column("draft", "Draft"),
        Column("slow", "Autoregressive", "ms per token"),
        Column("fast", "Speculative, auto", "ms per token"),
        Column("speedup", "Speedup", "×", 3),
        Column("acceptance", "Accepted of tested", "%", 0),
        Column("block", "Tokens per target pass"),
    ),
    chart=Chart(
        kind="bars",
        x="draft",
        y=("speedup",),
        level=even,
        reading="The dashed line is autoregression; auto should stay close to it.",
    ),
    measure=_measure,
    conclude=_conclude,
)
