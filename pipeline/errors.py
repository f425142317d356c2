"""Errors that a user reads: one line that names the field, the value and the remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Entry = TypeVar("Entry")

_SHOWN = 60  # characters of a value that are shown


class UserError(Exception):
    """An error that a user can cause and fix.

    Args:
        field: the invalid input, in the user's words ("draft length"); shortened like a value.
        value: its value; shown as a short, single-line, printable text.
        remedy: what to do about it, a sentence without its full stop.
    """

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.field, self.value, self.remedy = _short(field), value, remedy
        shown = f"“{_short(value)}”" if isinstance(value, str) else _short(value)
        super().__init__(f"{self.field}: {shown} — {remedy}.")

    def __reduce__(self) -> tuple[type[UserError], tuple[str, object, str]]:
        return type(self), (self.field, self.value, self.remedy)


class LogitsError(UserError):
    """A model's output cannot be decoded: logits that are no numbers, or a drafted token that the
    target does not know. The cause is a model or its precision, not the request.
    """


def find_entry(registry: Mapping[str, Entry], field: str, name: object) -> Entry:
    """The entry of a registry that has this name.

    Raises:
        UserError: there is none; it names the field and those there are.
    """
    if name not in [*registry]:  # a list, since a user's value may not be hashable
        raise UserError(field, name, f"choose one of {', '.join(registry)}")
    return registry[str(name)]


def first_line(error: Exception) -> str:
    """The beginning of an error of a library; its type where it has no text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _short(value: object) -> str:
    """A printable single line; `ascii` escapes NULs and lone surrogates."""
    text = str(value)
    shown = text if text.isprintable() else ascii(text)[1:-1]
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
