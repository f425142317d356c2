"""The same race without the page: `race` streams it, `trace` returns it whole; `status`."""

import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

import gradio as gr

from pipeline.decoding.drafters import DRAFTERS
from pipeline.decoding.race import Mode
from pipeline.request import Request
from pipeline.run import Run, Update
from pipeline.runtime.kv_cache.registry import POLICIES
from ui.errors import logged_line
from ui.run.activity import PERIOD
from ui.run.loader import Loader
from ui.run.task import Task
from ui.run.turn import Turn

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly

CONCURRENCY_ID = "model"  # shared by all that runs the models: one at a time


def add(loader: Loader, turn: Turn) -> None:
    """Adds the three endpoints to the page being built."""

    def race(*values: Any) -> Iterator[str]:
        """Races both decoders; streams JSON, {"updates": [...]}, and at last {"trace": {...}}.

        The parameters are those of `pipeline.request.Request`, and `mode`. It is text because
        Gradio sends the difference to the value before, and gets that wrong for lists within lists.
        """
        with _one_line_errors():
            run = _start(loader.dolly(), values)
            task = Task(turn.hold(iter(run)), name="api")
            task.start()
            try:
                for updates in task.updates(PERIOD):
                    if updates:
                        yield json.dumps({"updates": [_plain(update) for update in updates]})
            finally:
                task.cancel()
            if task.failure:
                raise task.failure
            yield json.dumps({"trace": run.trace().to_dict()})

    def trace(*values: Any) -> dict[str, Any]:
        """Races both decoders and returns the trace.

        The parameters are those of `pipeline.request.Request`, and `mode`: "race", "sequential",
        "autoregressive" or "speculative".
        """
        with _one_line_errors():
            run = _start(loader.dolly(), values)
            for _ in turn.hold(iter(run)):
                pass
            return run.trace().to_dict()

    def status() -> dict[str, Any]:
        """Whether the models are loaded, and which they are."""
        ready = loader.done and not loader.failure
        about = loader.dolly().about if ready else {"name": loader.pair.name}
        return {"ready": ready, "pair": about, "note": loader.pair.note}

    for function in (race, trace):
        gr.api(
            _with_parameters(function),
            api_name=function.__name__,
            concurrency_limit=1,
            concurrency_id=CONCURRENCY_ID,
        )
    gr.api(status, api_name="status", concurrency_limit=None)


def _start(dolly: "Dolly", values: Sequence[Any]) -> "Run":
    """The run of a request's fields, in their order, with the mode after them."""
    *fields, mode = values
    return dolly.start(Request(*fields), mode)


def _with_parameters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Describes `*values` to Gradio: a request's fields, with the names to choose from, and a
    mode.
    """
    returned = inspect.signature(function).return_annotation
    mode = inspect.Parameter("mode", inspect.Parameter.POSITIONAL_OR_KEYWORD, default="race")
    parameters = [*inspect.signature(Request).parameters.values(), mode]
    signature = inspect.Signature(parameters, return_annotation=returned)
    function.__signature__ = signature  # type: ignore[attr-defined]
    kinds = {**get_type_hints(Request), "mode": Mode, "return": returned}
    for field, names in (("drafter", [*DRAFTERS]), ("kv_cache", [*POLICIES])):
        kinds[field] = Literal.__getitem__(tuple(names))
    function.__annotations__ = kinds
    return function


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Errors as Gradio passes them on to a client: one line, no traceback."""
    try:
        yield
    except Exception as error:
        raise gr.Error(logged_line(error), print_exception=False) from None


def _plain(update: "Update") -> dict[str, Any]:
    """`update` as JSON can hold it."""
    event = {"type": type(update.event).__name__.lower(), **asdict(update.event)}
    tokens = [asdict(token) for token in update.tokens]
    return {"lane": update.lane, "time_s": update.time_s, "event": event, "tokens": tokens}
