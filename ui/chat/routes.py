"""The routes of the chat API: `/v1/chat/completions` and `/v1/models`.

A pair NAME is two models: NAME decodes speculatively, with the settings that the page begins with
for the pair, and NAME-autoregressive autoregressively. Their greedy texts are the same.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing
from itertools import chain
from typing import Any

from starlette.background import BackgroundTask
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HTTPRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route, Router

from pipeline.decoding.events import FinishReason
from pipeline.decoding.race import Mode
from pipeline.engine import Engine, LocalEngine, Running
from pipeline.errors import UserError
from pipeline.progress import Progress
from pipeline.task import Task
from pipeline.trace.record import Lane, Trace
from pipeline.trace.recording import Update
from ui.chat.errors import ChatError, chat_error
from ui.chat.logprobs import Entry, Logprobs
from ui.chat.reply import Reply
from ui.chat.request import ChatRequest, parse_chat_request
from ui.chat.stream import EventStream, Pace, event
from ui.errors import error_line
from ui.inputs import LARGEST_BODY
from ui.run.loader import Loader
from ui.run.turn import Turn

Work = Generator[Update | Progress | None, None, object]
Updates = AsyncGenerator[list[Update], None]

BODY_TIMEOUT = 30.0  # seconds in which the body of a request must arrive
STREAM_TIMEOUT = 30.0  # seconds that a stream waits for a client that does not read it
_PERIOD = 0.02  # seconds between two parts of a stream
_JSON = "application/json"


class Chat:
    """Answers chat requests, in one queue with the runs of the page.

    Args:
        loader: of the pair, whose models may still be loading.
        turn: shared with the page.
        queue_size: requests that may wait; more are refused.
        visitors: returns how many runs of the page are waiting, which count too.

    Attributes:
        body_timeout, stream_timeout: in seconds.
        open: requests that run or wait.
    """

    def __init__(
        self, loader: Loader, turn: Turn, queue_size: int, visitors: Callable[[], int]
    ) -> None:
        self._loader, self._turn = loader, turn
        self._queue_size, self._visitors = queue_size, visitors
        self.body_timeout, self.stream_timeout = BODY_TIMEOUT, STREAM_TIMEOUT
        self.open: set[object] = set()
        self._created = int(time.time())

    @property
    def route(self) -> Mount:
        routes = [
            Route("/chat/completions", self._complete, methods=["POST"]),
            Route("/models", self._list_models),
            Route("/models/{model}", self._show_model),
        ]
        app = Router(routes, redirect_slashes=False)
        return Mount("/v1", ExceptionMiddleware(app, {HTTPException: _refuse, Exception: _refuse}))

    # --- models ----------------------------------------------------------------------------------

    def _engine(self) -> Engine:
        """The loaded pair.

        Raises:
            ChatError: there is none.
        """
        if not self._loader.done:
            remedy = f"{self._loader.progress}; try again later"
            raise ChatError(503, str(UserError("pair", self._loader.pair.name, remedy)))
        if self._loader.failure:
            raise ChatError(503, error_line(self._loader.failure))
        return self._loader.engine()

    async def _list_models(self, _: HTTPRequest) -> Response:
        models = [self._about(name) for name in _modes(self._engine())]
        return JSONResponse({"object": "list", "data": models})

    async def _show_model(self, http: HTTPRequest) -> Response:
        name = http.path_params["model"]
        _mode(self._engine(), name)
        return JSONResponse(self._about(name))

    def _about(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._created, "owned_by": "dolly"}

    # --- completions -----------------------------------------------------------------------------

    async def _complete(self, http: HTTPRequest) -> Response:
        asked = parse_chat_request(await self._body(http))
        engine = self._engine()
        mode, pair = _mode(engine, asked.model), engine.pair
        request = asked.request(pair)
        if len(self.open) + self._visitors() >= self._queue_size + self._turn.at_once:
            line = f"at most {self._queue_size} may wait; try again later"
            raise ChatError(429, str(UserError("queue", "full", line)))
        self.open.add(place := object())
        pace = Pace(self.stream_timeout)
        try:
            run = await run_in_threadpool(engine.start, request, mode)
            # A replica that a run has left to others would not be free for them.
            local = isinstance(engine, LocalEngine)
            work = self._turn.run(iter(run), lambda: local and pace.unread)
            updates = self._updates(self._placed(place, work))
            await anext(updates)  # from here on, closing it frees the place
        except BaseException:
            self.open.discard(place)
            raise
        logprobs = Logprobs(engine.token_bytes) if asked.logprobs else None
        if asked.stream:
            chunks = _stream(updates, run, mode, asked, logprobs)
            closing = BackgroundTask(updates.aclose)  # if the client left before the first chunk
            return EventStream(chunks, pace, closing)
        entries: list[Entry] | None = None if logprobs is None else []
        async with aclosing(updates):
            async for several in updates:
                if await http.is_disconnected():
                    return Response()
                if logprobs and entries is not None:
                    entries += chain(*map(logprobs.of, several))
        trace, lane = _result(run, mode)
        return JSONResponse(Reply(asked.model).whole(trace, lane, entries))

    def _placed(self, place: object, work: Work) -> Work:
        """The work, which has this place until it ends: not until the last of it is read."""
        try:
            return (yield from work)
        finally:
            self.open.discard(place)

    async def _body(self, http: HTTPRequest) -> bytes:
        """The request's body.

        Raises:
            ChatError: it is not JSON, which a browser sends for other pages without asking; or it
                is too large, or does not arrive.
        """
        kind = http.headers.get("Content-Type", "").partition(";")[0].strip()
        if kind.lower() != _JSON:
            raise ChatError(415, str(UserError("Content-Type", kind, f"send {_JSON}")))
        body = bytearray()
        try:
            async with asyncio.timeout(self.body_timeout):
                async for part in http.stream():
                    body += part
                    if len(body) > LARGEST_BODY:
                        remedy = f"send at most {LARGEST_BODY // 2**20} MB"
                        raise ChatError(413, str(UserError("body", "too large", remedy)))
        except TimeoutError:
            line = str(UserError("body", "incomplete", f"send it within {self.body_timeout:g} s"))
            raise ChatError(408, line, headers={"Connection": "close"}) from None
        return bytes(body)

    async def _updates(self, work: Work) -> Updates:
        """Yields nothing at first, then the updates of the run. Closing it cancels the run."""
        task = Task(work, name="chat")
        task.start()
        try:
            yield []
            async for reports in iterate_in_threadpool(task.updates(_PERIOD)):
                yield [each for each in reports if isinstance(each, Update)]
        finally:
            task.cancel()
        if task.failure:
            raise task.failure


async def _stream(
    updates: Updates, run: Running, mode: Mode, asked: ChatRequest, logprobs: Logprobs | None
) -> AsyncGenerator[str, None]:
    """The server-sent events of a completion, an error included."""
    reply = Reply(asked.model, asked.include_usage)
    async with aclosing(updates):
        try:
            yield event(reply.chunk({"role": "assistant", "content": ""}))
            async for several in updates:
                for update in several:
                    entries = logprobs.of(update) if logprobs else None
                    if text := "".join(token.text for token in update.tokens) + update.rest:
                        yield event(reply.chunk({"content": text}, entries=entries))
            trace, lane = _result(run, mode)
            yield event(reply.chunk({}, lane.finish))
            if asked.include_usage:
                yield event(reply.usage_chunk(trace, lane))
        except Exception as error:
            yield event(chat_error(error).body)
    yield "data: [DONE]\n\n"


def _result(run: Running, mode: Mode) -> tuple[Trace, Lane]:
    """The trace of a run that has ended, and its lane.

    Raises:
        ChatError: it was cancelled.
    """
    run.close()
    trace = run.trace()
    lane = trace.lanes[mode]
    if lane.finish == FinishReason.CANCELLED:
        raise ChatError(503, "server: shutting down — try again later.")
    return trace, lane


def _modes(engine: Engine) -> dict[str, Mode]:
    """The modes of the pair's models."""
    name = engine.pair.name
    return {name: "speculative", f"{name}-autoregressive": "autoregressive"}


def _mode(engine: Engine, model: str) -> Mode:
    """The mode of a model.

    Raises:
        ChatError: there is no such model.
    """
    modes = _modes(engine)
    if model not in modes:
        line = str(UserError("model", model, f"choose {' or '.join(modes)}"))
        raise ChatError(404, line, "model", "model_not_found")
    return modes[model]


async def _refuse(http: HTTPRequest, error: Exception) -> Response:
    """The response to any error."""
    if isinstance(error, ClientDisconnect):
        logging.getLogger(__name__).warning("A client left before its request had arrived")
        return Response()
    if isinstance(error, HTTPException):  # the router's
        error = _misdirected(http, error)
    refusal = chat_error(error)
    return JSONResponse(refusal.body, refusal.status, refusal.headers)


def _misdirected(http: HTTPRequest, error: HTTPException) -> ChatError:
    """The error of another method, or of another address."""
    if error.status_code != 405:
        remedy = "not served; there are /v1/chat/completions and /v1/models"
        return ChatError(404, str(UserError("address", http.url.path, remedy)))
    allowed = sorted((error.headers or {})["Allow"].split(", "))
    line = str(UserError("method", http.method, f"use {allowed[0]}"))
    return ChatError(405, line, headers={"Allow": ", ".join(allowed)})
