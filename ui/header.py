"""The line at the top that says what is loaded and what is going on."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

from pipeline.pairs import Pair
from pipeline.request import Request
from ui.live import fields

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly

DRAFT_LENGTH: int = Request("any").draft_length  # what a visitor gets who sets nothing


def header_fields(pair: Pair, loading: Future[Dolly], now: tuple[str, str] | None = None) -> str:
    """The fields of `header.html`.

    Args:
        pair: what is served.
        loading: its models.
        now: a state and its line; without it, whether the models are there.
    """
    about = pair.title
    if loading.done() and not loading.exception():
        weights = loading.result().describe()["target"]["weights"]
        about = f"{pair.title} · CPU · {weights.upper()} · K={DRAFT_LENGTH}"
    state, line = now or _readiness(loading)
    return fields(state=state, line=line, about=about)


def _readiness(loading: Future[Dolly]) -> tuple[str, str]:
    if not loading.done():
        return "loading", "Loading the models…"
    error = loading.exception()
    return ("ready", "Ready") if error is None else ("error", str(error))
