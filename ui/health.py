"""Whether the server can answer: for the API, and for what watches a container."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from ui.run.loader import Loader
from ui.run.turn import Turn


def status(loader: Loader) -> dict[str, Any]:
    """Whether the models are loaded, and their pair."""
    ready = loader.done and not loader.failure
    about = loader.engine().about if ready else {"name": loader.pair.name}
    return {"ready": ready, "pair": about, "note": loader.pair.note}


def route(loader: Loader, turn: Turn) -> Route:
    """`GET /ready`: the status, with HTTP status 503 until the models are loaded and once the
    server shuts down. It takes no place in the queue.
    """

    async def ready(_: Request) -> JSONResponse:
        now = status(loader)
        return JSONResponse(now, 200 if now["ready"] and not turn.closed else 503)

    return Route("/ready", ready)
