"""A link that fills the form, read. `page.js` writes it; opening one never runs anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from math import inf
from typing import Any, get_args

from pipeline.decoding.race import Mode
from pipeline.errors import UserError
from pipeline.request import Request

DEFAULTS: dict[str, Any] = {  # of the form, which says None by an empty word
    "instruction": "",
    **{field.name: "" if field.default is None else field.default for field in fields(Request)[1:]},
    "mode": get_args(Mode)[0],
}


def read(
    query: Mapping[str, str], limits: Mapping[str, tuple[float, float]]
) -> tuple[dict[str, Any], str]:
    """What a link asks for, by the names of `DEFAULTS`, and one line on what it may not have.

    Args:
        query: of the link. Names that are not ours are passed over: hosts add their own.
        limits: the page's own, least and most, where it allows less than a request does.
    """
    given = {name: _typed(name, query[name]) for name in DEFAULTS if name in query}
    ranges = dict.fromkeys(DEFAULTS, (-inf, inf)) | dict(limits)
    asked = {name: value for name, value in given.items() if _possible(name, value, *ranges[name])}
    refused = [f"{name}={query[name]}" for name in given.keys() - asked.keys()]
    if not refused:
        return asked, ""
    remedy = "not possible here, so the form keeps its own"
    return asked, str(UserError("link", " ".join(sorted(refused)), remedy))


def _typed(name: str, text: str) -> Any:
    """A number where one is expected and given."""
    if isinstance(DEFAULTS[name], int | float):
        for kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                pass
    return text


def _possible(name: str, value: Any, low: float, high: float) -> bool:
    if isinstance(value, int | float) and not low <= value <= high:
        return False
    if value == DEFAULTS[name]:
        return True
    if name == "mode":
        return value in get_args(Mode)
    try:
        Request(**{"instruction": "any", name: value})
    except UserError:
        return False
    return True
