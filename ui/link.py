"""Reads the form's values from a link, which `page.js` writes. A link never starts a run.

A link may also open the tour, at the stop of that number: `?tour=3`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf
from typing import Any, get_args

from pipeline.decoding.drafters import DRAFTERS
from pipeline.decoding.race import Mode
from pipeline.errors import UserError
from pipeline.request import DEFAULTS, FORM_FIELDS, Request

BLANK: dict[str, Any] = {  # of the form, which shows None as an empty text
    **{name: "" if DEFAULTS[name] is None else DEFAULTS[name] for name in FORM_FIELDS},
    "instruction": "",
    "mode": get_args(Mode)[0],
}

STOPS = ("race", "token", "draft", "verify", "rejection", "bonus", "loss")  # of the tour


def read(
    query: Mapping[str, str],
    limits: Mapping[str, tuple[float, float]],
    drafters: Collection[str] = (*DRAFTERS,),
) -> tuple[dict[str, Any], str]:
    """The values that a link sets, by the names of `BLANK`, and an error line for invalid ones.

    Args:
        query: the link's parameters. Unknown names are ignored: hosts add their own.
        limits: (minimum, maximum) of fields for which the page allows less than a request does.
        drafters: those of the pair.
    """
    given = {name: _typed(name, query[name]) for name in BLANK if name in query}
    ranges = dict.fromkeys(BLANK, (-inf, inf)) | dict(limits)
    asked = {name: value for name, value in given.items() if _possible(name, value, *ranges[name])}
    if asked.get("drafter") not in (None, *drafters):
        del asked["drafter"]
    refused = [f"{name}={query[name]}" for name in given.keys() - asked.keys()]
    if query.get("tour", "1") not in map(str, range(1, len(STOPS) + 1)):
        refused.append(f"tour={query['tour']}")
    if not refused:
        return asked, ""
    remedy = "not allowed here; the form keeps its defaults"
    return asked, str(UserError("link", " ".join(sorted(refused)), remedy))


def _typed(name: str, text: str) -> Any:
    """Parses a number where one is expected; otherwise returns the text."""
    if isinstance(BLANK[name], int | float):
        for kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                pass
    return text


def _possible(name: str, value: Any, low: float, high: float) -> bool:
    if isinstance(value, int | float) and not low <= value <= high:
        return False
    if value == BLANK[name]:
        return True
    if name == "mode":
        return value in get_args(Mode)
    try:
        Request(**{"instruction": "any", name: value})
    except UserError:
        return False
    return True
