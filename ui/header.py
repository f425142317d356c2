"""The line at the top that says what is loaded and what is going on."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.request import Request
from ui.live import fields
from ui.loader import Loader

_DEFAULT = Request("any").draft_length  # what a visitor gets who sets nothing


@dataclass(frozen=True, slots=True)
class Status:
    """What is going on: a state to style it by, a line to read, the K in use."""

    state: str
    line: str
    draft_length: int | str = _DEFAULT


def header_fields(loader: Loader, now: Status) -> str:
    """The fields of `header.html`, of the pair that is served."""
    parts = [loader.pair.title]
    if loader.done and not loader.failure:
        about = loader.dolly().about
        parts += [about["device"], about["target"]["weights"], f"K={now.draft_length}"]
        parts += [about["note"]] if about["note"] else []
    return fields(state=now.state, line=now.line, about=" · ".join(parts))


def readiness(loader: Loader) -> Status:
    """Whether the models are there."""
    if not loader.done:
        return Status("loading", f"{loader.progress}…")
    error = loader.failure
    return Status("ready", "Ready") if error is None else Status("error", str(error))
