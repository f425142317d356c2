"""The API: `race` streams a run, `trace` returns its whole record, `status` the loaded models."""

import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Literal

import gradio as gr

from pipeline.decoding.race import Mode
from pipeline.engine import Engine, Running
from pipeline.request import FORM_FIELDS, KINDS, SETTINGS, Request
from pipeline.task import Task
from pipeline.trace.explanation import explanations
from pipeline.trace.recording import Update
from ui import health
from ui.errors import logged_line
from ui.run.activity import PERIOD
from ui.run.loader import Loader
from ui.run.turn import Turn

CONCURRENCY_ID = "model"  # of all events that run the models: as many at once as `Turn` lets


def add(loader: Loader, turn: Turn) -> None:
    """Adds the three endpoints to the page being built."""

    def race(*values: Any) -> Iterator[str]:
        """Races both decoders; streams JSON, {"updates": [...]}, and finally {"trace": {...}}.

        The parameters are those of `pipeline.request.Request`, and `mode`. The values are text:
        Gradio sends objects as differences, which are wrong for nested lists.
        """
        with _one_line_errors():
            run = _start(loader.engine(), values)
            for reports in Task(turn.run(iter(run)), name="api").follow(PERIOD):
                updates = [each for each in reports if isinstance(each, Update)]
                if updates:
                    yield json.dumps({"updates": [_plain(update) for update in updates]})
            run.close()
            yield json.dumps({"trace": _explained(run)})

    def trace(*values: Any) -> dict[str, Any]:
        """Races both decoders and returns the trace, with `explanations` of its steps and tokens.

        The parameters are those of `pipeline.request.Request`, and `mode`: "race", "sequential",
        "autoregressive" or "speculative".
        """
        with _one_line_errors():
            run = _start(loader.engine(), values)
            for _ in turn.run(iter(run)):
                pass
            run.close()
            return _explained(run)

    def status() -> dict[str, Any]:
        """Returns whether the models are loaded, and their pair."""
        return health.status(loader)

    for function in (race, trace):
        gr.api(
            _with_parameters(function),
            api_name=function.__name__,
            concurrency_limit=turn.at_once,
            concurrency_id=CONCURRENCY_ID,
        )
    gr.api(status, api_name="status", queue=False)


def _start(engine: Engine, values: Sequence[Any]) -> Running:
    """Starts a run from the values of a request's fields, in their order, and the mode."""
    *fields, mode = values
    return engine.start(Request(*fields), mode)


def _with_parameters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives the function a signature for Gradio: a request's fields, with the names that each
    allows, and the mode.
    """
    returned = inspect.signature(function).return_annotation
    mode = inspect.Parameter("mode", inspect.Parameter.POSITIONAL_OR_KEYWORD, default="race")
    of_request = inspect.signature(Request).parameters
    parameters = [*(of_request[name] for name in FORM_FIELDS), mode]
    signature = inspect.Signature(parameters, return_annotation=returned)
    function.__signature__ = signature  # type: ignore[attr-defined]
    kinds = {name: _kind(name) for name in FORM_FIELDS}
    function.__annotations__ = {**kinds, "mode": Mode, "return": returned}
    return function


def _kind(name: str) -> Any:
    """The type of a request's field; of a registry's, the names in it."""
    choices = SETTINGS[name].choices
    return Literal.__getitem__((*choices,)) if choices and KINDS[name] is str else KINDS[name]


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Raises errors as `gr.Error`, which clients receive as one line without a traceback."""
    try:
        yield
    except Exception as error:
        raise gr.Error(logged_line(error), print_exception=False) from None


def _explained(run: Running) -> dict[str, Any]:
    """The trace, and in words what happened in each step; a reader ignores the words."""
    trace = run.trace()
    return {**trace.to_dict(), "explanations": explanations(trace)}


def _plain(update: Update) -> dict[str, Any]:
    """The update as plain JSON values."""
    event = {"type": type(update.event).__name__.lower(), **asdict(update.event)}
    tokens = [asdict(token) for token in update.tokens]
    return {"lane": update.lane, "time_s": update.time_s, "event": event, "tokens": tokens}
