"""A stream of server-sent events whose client may not read it."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator
from typing import Any

from starlette.background import BackgroundTask
from starlette.responses import StreamingResponse
from starlette.types import Message, Send

from pipeline.errors import UserError

_BEHIND = 0.5  # seconds that sending takes if the client does not read


class Pace:
    """How far a client is behind the stream that it is sent.

    Args:
        patience: seconds that sending a part may take.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._began: float | None = None  # of a part that is being sent

    @property
    def unread(self) -> bool:
        """Whether the client does not read; from any thread."""
        began = self._began
        return began is not None and time.monotonic() - began > _BEHIND

    async def send(self, send: Send, message: Message) -> None:
        """Sends a part, for which the connection must have room.

        Raises:
            TimeoutError: the client did not read in time.
        """
        self._began = time.monotonic()
        async with asyncio.timeout(self._patience):
            await send(message)
        self._began = None


class EventStream(StreamingResponse):
    """Sends events until the client no longer reads them.

    Args:
        chunks: as `event` returns them.
        pace: of the client.
        closing: runs at the end, also if the client has left.
    """

    def __init__(
        self, chunks: AsyncGenerator[str, None], pace: Pace, closing: BackgroundTask
    ) -> None:
        super().__init__(chunks, media_type="text/event-stream", background=closing)
        self._pace = pace

    async def stream_response(self, send: Send) -> None:
        async def paced(message: Message) -> None:
            await self._pace.send(send, message)

        try:
            await super().stream_response(paced)
        except TimeoutError:
            error = UserError("stream", "not read", "the client must read it while it comes")
            logging.getLogger(__name__).warning("%s", error)


def event(value: dict[str, Any]) -> str:
    """A server-sent event; JSON in ASCII has no line breaks."""
    return f"data: {json.dumps(value)}\n\n"
