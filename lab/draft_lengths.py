"""Every draft length as a condition, and its row in a table."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Literal

from lab.answers import Answers, Condition
from lab.result import Column, Row, Rows
from pipeline.request import DRAFT_LENGTHS

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly

REPEATS = 3
NONE, AUTO = "none", "auto"  # autoregression; the length that adapts
LENGTHS = (NONE, *map(str, DRAFT_LENGTHS[1:]), AUTO)
COLUMNS = (
    Column("length", "K"),
    Column("ms", "Time per token", "ms"),
    Column("speedup", "Speedup", "×"),
    Column("acceptance", "Accepted of tested", "%", 0),
    Column("block", "Tokens per target pass"),
)


def conditions(dolly: Dolly) -> list[Condition]:
    """One for each of `LENGTHS`; "none" is autoregressive decoding."""
    length: dict[str, int | Literal["auto"]] = {name: int(name) for name in LENGTHS[1:-1]}
    length[AUTO] = "auto"
    drafting = (Condition(n, dolly, changes={"draft_length": k}) for n, k in length.items())
    return [Condition(NONE, dolly, "autoregressive"), *drafting]


def rows_of(answers: Answers) -> Iterator[Row]:
    """A row for each length that is measured."""
    for length in LENGTHS:
        if cells := answers.cells(length, over=NONE):
            yield {"length": length, **cells}


def best_fixed(rows: Rows) -> Row:
    """The fastest row of a fixed length; no drafting is one of them."""
    return min((row for row in rows if row["length"] != AUTO), key=itemgetter("ms"))


def auto(rows: Rows) -> Row:
    """The row of the length that adapts."""
    return next(row for row in rows if row["length"] == AUTO)
