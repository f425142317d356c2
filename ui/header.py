"""The header: where the loaded pair runs, and the current status."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.engine import Engine
from pipeline.errors import UserError
from ui.component import fields
from ui.run.loader import Loader

_INEXACT = "not exact: rounding depends on the number of tokens in a forward pass"


@dataclass(frozen=True, slots=True)
class Status:
    """The status line.

    Attributes:
        state: selects its style: ready (also a win), ended (of another race), loading, running,
            opened or error.
        line: its text.
        engine: the pair of a run, which may be replaced before the run ends.
    """

    state: str
    line: str
    engine: Engine | None = None


def header_fields(loader: Loader, now: Status) -> str:
    """The fields of `header.html`, for the pair of the current run, else for the loaded pair."""
    engine = now.engine or (loader.engine() if loader.done and not loader.failure else None)
    parts = ["no pair loaded"] if loader.failure and not engine else []
    if engine:
        about = engine.about
        parts += [about["device"], about["target"]["weights"]]
        parts += [about["note"]] if about["note"] else []
        parts += [] if about["exact_widths"] else [_INEXACT]
    return fields(state=now.state, line=now.line, about=" · ".join(parts))


def readiness(loader: Loader) -> Status:
    """The status of the models: loading, ready or failed."""
    if not loader.done:
        return Status("loading", f"{loader.progress}…")
    error = loader.failure
    return Status("ready", "Ready") if error is None else Status("error", str(error))


def offer(loader: Loader) -> str | None:
    """Suggests a pair to load if the current one failed; None otherwise."""
    if not loader.failure or loader.fixed:
        return None
    remedy = f"not loaded; press Load in Settings to use {loader.offer.title}, or choose another"
    return str(UserError("pair", loader.pair.name, remedy))
