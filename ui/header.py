"""The line at the top that says what is loaded and what is going on."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.pairs import Pair
from pipeline.request import Request
from ui.live import fields

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly

_DEFAULT = Request("any").draft_length  # what a visitor gets who sets nothing


@dataclass(frozen=True, slots=True)
class Status:
    """What is going on: a state to style it by, a line to read, the K in use."""

    state: str
    line: str
    draft_length: int | str = _DEFAULT


def header_fields(pair: Pair, loading: Future[Dolly], status: Status | None = None) -> str:
    """The fields of `header.html`.

    Args:
        pair: what is served.
        loading: its models.
        status: without it, whether the models are there.
    """
    now, about = status or _readiness(loading), pair.title
    if loading.done() and not loading.exception():
        weights = loading.result().describe()["target"]["weights"]
        about = f"{pair.title} · CPU · {weights} · K={now.draft_length}"
    return fields(state=now.state, line=now.line, about=about)


def _readiness(loading: Future[Dolly]) -> Status:
    if not loading.done():
        return Status("loading", "Loading the models…")
    error = loading.exception()
    return Status("ready", "Ready") if error is None else Status("error", str(error))
