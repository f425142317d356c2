"""Errors as the page and its API show them: one line, no traceback."""

from __future__ import annotations

import logging

from pipeline.errors import UserError

_LONGEST = 200  # characters of what an error says


def error_line(error: BaseException, what: str = "run") -> str:
    """A user's error as it is; of any other, what failed, how, and what to do."""
    if isinstance(error, UserError):
        return str(error)
    reason = " ".join(str(error).split())[:_LONGEST]
    return f"{what}: {type(error).__name__} {reason} — try again; the log has the details."


def logged_line(error: BaseException, what: str = "run") -> str:
    """The same; what no user caused goes to the log, with its traceback."""
    if not isinstance(error, UserError):
        logging.getLogger(__name__).error("A %s failed", what, exc_info=error)
    return error_line(error, what)
