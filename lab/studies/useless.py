"""Drafts that cannot help: what the adaptive draft length loses before it gives up."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

from lab.answers import Answers, Condition, answered, both_modes, tabulated
from lab.draft_lengths import AUTO
from lab.prompts import KINDS
from lab.result import Chart, Column, Result, Row, Rows, even
from lab.shapes import SHAPES, random_model
from lab.study import Setup, Study
from pipeline.decoding.drafters.model import MODEL
from pipeline.decoding.events import AUTOREGRESSIVE, SPECULATIVE
from pipeline.models.pairs import Model
from pipeline.request import Request

_MAX_NEW_TOKENS = 100
_REPEATS = 12
_RANDOM, _SAME = "random weights", "the target itself"


def _measure(setup: Setup) -> Generator[Result, None, None]:
    target = setup.choice.pair.target
    folder = yield from random_model(setup, SHAPES["draft"])
    conditions: list[Condition] = []
    for name, draft in ((_RANDOM, Model(str(folder))), (_SAME, target)):
        dolly = yield from setup.other(replace(setup.choice.pair, draft=draft, block=None))
        conditions += both_modes(name, dolly, {"draft_length": AUTO})
    requests = [
        Request(*prompt, max_new_tokens=_MAX_NEW_TOKENS, drafter=MODEL.name)
        for prompt in KINDS["open question"]
    ]
    answers = answered(conditions, requests, setup.repeats or _REPEATS)
    yield from tabulated(answers, _rows, conditions[0].dolly.about)


def _rows(answers: Answers) -> Iterator[Row]:
    for name in (_RANDOM, _SAME):
        if cells := answers.cells(f"{name} {SPECULATIVE}", over=f"{name} {AUTOREGRESSIVE}"):
            took = cells.pop("ms")
            yield {"draft": name, "slow": took * cells["speedup"], "fast": took, **cells}


def _conclude(rows: Rows) -> str:
    each = {row["draft"]: row["speedup"] for row in rows}
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
