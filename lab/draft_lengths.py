"""Every draft length as a condition, and its row in a table."""

from __future__ import annotations

from collections.abc import Collection
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


def row_of(
    answers: Answers, length: str, requests: Collection[int] | None = None
) -> dict[str, float | str | None] | None:
    """The cells of `COLUMNS`; None before the length is measured."""
    seconds = answers.seconds_per_token(length, requests)
    if seconds is None:
        return None
    return {
        "length": length,
        "ms": 1e3 * seconds,
        "speedup": answers.speedup(length, NONE, requests),
        "acceptance": answers.acceptance_rate(length, requests),
        "block": answers.block_efficiency(length, requests),
    }


def best_fixed(rows: Rows) -> Row:
    """The fastest row of a fixed length; no drafting is one of them."""
    return min((row for row in rows if row["length"] != AUTO), key=itemgetter("ms"))


def auto(rows: Rows) -> Row:
    """The row of the length that adapts."""
    return next(row for row in rows if row["length"] == AUTO)
