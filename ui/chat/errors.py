"""Errors of the chat API: OpenAI's JSON, with one line for the user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.errors import UserError
from ui.errors import by_user, logged_line

_TYPES = {429: "rate_limit_error", 500: "server_error", 503: "server_error"}
_BUSY = {"queue": 429, "replica": 503}  # the server's doing, for which it asks to try again


class ChatError(Exception):
    """An error with its HTTP status.

    Args:
        status: of the response.
        message: one line.
        param: the parameter that caused it, if any.
        code: OpenAI's name of it, if it has one.
        headers: of the response.
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = headers

    @property
    def body(self) -> dict[str, Any]:
        kind = _TYPES.get(self.status, "invalid_request_error")
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": error}


def chat_error(error: Exception) -> ChatError:
    """Any error as one of the chat API: 400 if the user caused it, 429 or 503 if the server has no
    replica for it, else 500, which is logged.
    """
    if isinstance(error, ChatError):
        return error
    if not isinstance(error, UserError) or not by_user(error):
        return ChatError(500, logged_line(error, "chat completion"))
    if error.field in _BUSY:
        return ChatError(_BUSY[error.field], str(error))
    if error.field == "prompt tokens":
        return ChatError(400, str(error), "messages", "context_length_exceeded")
    return ChatError(400, str(error), error.field)
