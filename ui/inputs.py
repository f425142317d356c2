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
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.errors import UserError

_CALLS = (
    *("/gradio_api/call/", "/gradio_api/run/", "/gradio_api/api/", "/gradio_api/queue/join"),
    *("/gradio_api/cancel", "/gradio_api/component_server", "/gradio_api/stream/"),
)
# Converts videos, in no queue; edits the program, where Gradio's editor is on; and a stream without
# an end, for Gradio's own developers.
_UNUSED = (
    *("/gradio_api/process_recording", "/gradio_api/vibe", "/gradio_api/undo-vibe"),
    "/gradio_api/dev/",
)
_GRADIO = "/gradio_api/"
LARGEST_BODY = 4 * 2**20  # bytes; both texts of a request at their limit take 1.2 MB
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
            if block_fn.fn is None:
                raise UserError("call", block_fn.api_name, "it runs in the browser alone")
            expected = len(block_fn.inputs)
            if len(inputs) != expected and not block_fn.cancels:  # to which Gradio adds one
                raise UserError("inputs", len(inputs), f"{block_fn.api_name} takes {expected}")
            values: list[Any] = await super().preprocess_data(block_fn, inputs, *args, **kwargs)
        except Exception as error:
            raise gr.Error(_refusal(error), print_exception=False) from None
        return values


class Refusing:
    """ASGI middleware: a call that names no endpoint, or lacks its parameters, gets status 400; one
    that is too large, 413; and what the page never asks of Gradio, 404.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if path.startswith(_UNUSED):
            error = UserError("address", path, "the page has no use for it; see /gradio_api/info")
            await JSONResponse({"detail": _refusal(error)}, 404)(scope, receive, send)
            return
        if not path.startswith(_GRADIO):
            await self._app(scope, receive, send)
            return
        limited = path.startswith(_CALLS)
        begun, size = False, 0
        too_large: UserError | None = None

        async def counting() -> Message:
            nonlocal size, too_large
            message = await receive()
            size += len(message.get("body", b""))
            if limited and size > LARGEST_BODY:
                most = f"send at most {LARGEST_BODY // 2**20} MB"
                too_large = UserError("body", "too large", most)
                raise too_large
            return message

        async def noting(message: Message) -> None:
            nonlocal begun
            if too_large:
                return  # the framework's own words for a body that it could not read
            begun = True
            await send(message)

        refused: Exception | None = None
        try:
            await self._app(scope, counting, noting)
        except (FnIndexInferError, LookupError, TypeError, ValueError, UserError) as error:
            if begun:
                raise
            refused = error
        except RuntimeError as error:
            if not (begun and isinstance(error.__cause__, HTTPException)):
                raise
            # Of a stream that is not there: Gradio says so in it, and raises.
            _refusal(UserError("stream", path, "it is not there, or has ended; call again"))
            await send({"type": "http.response.body"})
        if refused := too_large or refused:
            response = JSONResponse({"detail": _refusal(refused)}, 413 if too_large else 400)
            await response(scope, receive, send)


def _refusal(error: Exception) -> str:
    """The error's line, which is also logged."""
    if isinstance(error, gr.Error):  # of a menu: a value that it does not have
        error = UserError("call", error.message, _REMEDY)
    elif isinstance(error, InvalidPathError):
        error = UserError("file", "not uploaded", "upload it, and send the path of the upload")
    elif not isinstance(error, UserError):
        reason = f"{type(error).__name__} {error}".partition(" Please ")[0]
        error = UserError("call", reason, _REMEDY)
    logging.getLogger(__name__).warning("%s", error)
    return str(error)
