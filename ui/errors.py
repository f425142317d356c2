"""Errors as the page and its API show them: one line, no traceback."""

from __future__ import annotations

import logging

from pipeline.errors import LogitsError, UserError

_LONGEST = 200  # characters of an error's message


def by_user(error: BaseException) -> bool:
    """Whether a user caused it, and not a model."""
    return isinstance(error, UserError) and not isinstance(error, LogitsError)


def error_line(error: BaseException, what: str = "run") -> str:
    """A `UserError` unchanged; for any other error, one line with its type and a remedy."""
    if isinstance(error, UserError):
        return str(error)
    return f"{what}: {reason(error)} — try again; the log has the details."


def reason(error: BaseException) -> str:
    """An error that is no `UserError`, in one line."""
    return f"{type(error).__name__} {' '.join(str(error).split())[:_LONGEST]}"


def logged_line(error: BaseException, what: str = "run") -> str:
    """`error_line`; errors that no user caused are also logged, with their traceback."""
    if not by_user(error):
        logging.getLogger(__name__).error("A %s failed", what, exc_info=error)
    return error_line(error, what)
