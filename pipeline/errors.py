"""Errors that a user reads: one line that names the field, the value and the remedy."""

from __future__ import annotations

_SHOWN = 60  # characters of a value worth showing


class UserError(Exception):
    """Something a user can cause and mend.

    Args:
        field: what was wrong, in the user's words ("draft length").
        value: what was given; shown as a short, single-line, printable repr.
        remedy: what to do about it, a sentence without its full stop.
    """

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.field, self.value, self.remedy = field, value, remedy
        super().__init__(f"{field}: {_short(value)} — {remedy}.")

    def __reduce__(self) -> tuple[type[UserError], tuple[str, object, str]]:
        return type(self), (self.field, self.value, self.remedy)


def _short(value: object) -> str:
    """A printable single line; `ascii` keeps NULs and lone surrogates harmless."""
    text = str(value)
    shown = text if text.isprintable() else ascii(text)[1:-1]
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    return f"“{shown}”" if isinstance(value, str) else shown
