"""What clients send to events and endpoints: refused in one line for them and one in the log.

Gradio checks little, prints the traceback of what fails, and tells the client only that it did.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import gradio as gr
from gradio.exceptions import InvalidPathError
from gradio.route_utils import FnIndexInferError
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.errors import UserError

_CALLS = ("/gradio_api/call/", "/gradio_api/run/", "/gradio_api/api/", "/gradio_api/queue/join")
_REMEDY = "send what the API describes, at /gradio_api/info"


class CheckedBlocks(gr.Blocks):  # type: ignore[misc]  # Gradio has no types
    """Blocks that check the inputs of an event before it runs."""

    async def preprocess_data(
        self, block_fn: Any, inputs: Sequence[Any], *args: Any, **kwargs: Any
    ) -> list[Any]:
        """The values that the event's function receives.

        Raises:
            gr.Error: there are too few or too many, or one is not of its kind.
        """
        try:
            expected = len(block_fn.inputs)
            if len(inputs) != expected and not block_fn.cancels:  # to which Gradio adds one
                raise UserError("inputs", len(inputs), f"{block_fn.api_name} takes {expected}")
            values: list[Any] = await super().preprocess_data(block_fn, inputs, *args, **kwargs)
        except gr.Error:
            raise
        except Exception as error:
            raise gr.Error(_refusal(error), print_exception=False) from None
        return values


class Refusing:
    """ASGI middleware: a call that names no endpoint, or lacks its parameters, gets status 400."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope.get("path", "").startswith(_CALLS):
            await self._app(scope, receive, send)
            return
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except (FnIndexInferError, LookupError, TypeError, ValueError) as error:
            if begun:
                raise
            response = JSONResponse({"detail": _refusal(error)}, 400)
            await response(scope, receive, send)


def _refusal(error: Exception) -> str:
    """The error's line, which is also logged."""
    if isinstance(error, InvalidPathError):
        error = UserError("file", "not uploaded", "upload it, and send the path of the upload")
    elif not isinstance(error, UserError):
        reason = f"{type(error).__name__} {error}".partition(" Please ")[0]
        error = UserError("call", reason, _REMEDY)
    logging.getLogger(__name__).warning("%s", error)
    return str(error)
