"""The names by which a server that only its own machine reaches can be called.

A foreign web page may give its own name this machine's address (DNS rebinding). The browser then
lets its scripts call the server and read the answers, but sends the foreign name.
"""

from __future__ import annotations

import logging
from ipaddress import ip_address

from gradio.http_server import LOCALHOST_NAME
from gradio.utils import get_space
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pipeline.errors import UserError
from ui.chat.errors import ChatError

_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def is_local(host: str | None, share: bool) -> bool:
    """Whether a server that listens on `host` is reached from its own machine alone.

    Args:
        host: as on the command line; None takes Gradio's default.
        share: whether Gradio also opens a public link.
    """
    name = _listening(host)
    if share or get_space():
        return False
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name in _NAMES


class LocalHosts:
    """ASGI middleware: a request whose `Host` is not this machine's gets status 403.

    Args:
        host: that the server listens on, which is allowed too.
    """

    def __init__(self, app: ASGIApp, host: str | None = None) -> None:
        self._app, self._names = app, _NAMES | {_listening(host)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = "" if scope["type"] == "lifespan" else Headers(scope=scope).get("host", "")
        if not host or _name(host) in self._names:  # a browser always sends one
            await self._app(scope, receive, send)
            return
        error = UserError("Host header", host, "open this server as localhost, or set --host")
        logging.getLogger(__name__).warning("%s", error)
        is_chat = scope["path"].startswith("/v1/")
        body = ChatError(403, str(error)).body if is_chat else {"detail": str(error)}
        await JSONResponse(body, 403)(scope, receive, send)


def _listening(host: str | None) -> str:
    return (host or LOCALHOST_NAME).strip("[]")


def _name(host: str) -> str:
    """The name in a `Host` header, without the port or an address's brackets."""
    name = host[1:].partition("]") if host.startswith("[") else host.partition(":")
    return name[0].lower()
