"""The time of a forward pass by its number of tokens, for targets of several sizes."""

from __future__ import annotations

from collections.abc import Generator
from itertools import groupby
from operator import itemgetter

from lab.result import Chart, Result, Rows, even
from lab.shapes import SHAPES, random_model
from lab.studies.widths import COLUMNS, READING, measured
from lab.study import Setup, Study

_SHAPES = ("160M", "410M", "3B")
_REPEATS = 12


def _measure(setup: Setup) -> Generator[Result, None, None]:
    target, store = setup.choice.pair.target, setup.choice.store
    result = Result(pair={"name": setup.choice.pair.name})
    models = [(target.name, store.folder(target))]
    for shape in _SHAPES:
        folder = yield from random_model(setup, SHAPES[shape])
        models.append((f"{shape}, int8, random", folder))
    yield from measured(models, setup.repeats or _REPEATS, result)


def _conclude(rows: Rows) -> str:
    ratios = []
    for name, group in groupby(rows, itemgetter("model")):
        (five,) = (row for row in group if row["tokens"] == 5)
        ratios.append(f"{five['relative']:.2f} ({str(name).split(',')[0]})")
    return (
        f"A pass of five tokens takes {', '.join(ratios)} times as long as one of a single token."
    )


STUDY = Study(
    name="larger",
    title="Several tokens in one pass, by size",
    question="Is a pass of several tokens as cheap for larger targets?",
    needs="PyTorch and 12 GB of memory, to make models with random weights",
    seconds=300,
    columns=COLUMNS,
    chart=Chart(
        kind="lines",
        x="tokens",
        y=("relative",),
        series="model",
        level=even,
        reading=f"Over a pass of one token. {READING}",
    ),
    measure=_measure,
    conclude=_conclude,
)
