"""JSON that anybody may have written, read into frozen dataclasses by their annotations.

Knows types, not what they mean. Numbers are counts, seconds and probabilities: finite and not
negative. Texts are such as can be written again.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

_LARGEST = 2**53  # whole numbers beyond it are not the same in every program
_SCALARS = (int, float, str)
_DEEPEST = 4  # objects within an object whose fields are not known


class MisfitError(ValueError):
    """A value that is not what belongs there.

    Args:
        where: its path.
        value: what is there; what is no scalar is told by its type.
        wanted: what belongs there, as in "it must be …".
    """

    def __init__(self, where: str, value: object, wanted: str) -> None:
        super().__init__(where, value, wanted)
        scalar = value is None or isinstance(value, bool | float | str)
        short = scalar or (isinstance(value, int) and abs(value) <= _LARGEST)
        self.where, self.wanted = where.lstrip("."), wanted
        self.value = value if short else type(value).__name__


def parse(text: str) -> Any:
    """The JSON in `text`.

    Raises:
        MisfitError: it holds none.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MisfitError("", str(error), "JSON") from None


def read(kind: Any, value: Any, where: str = "") -> Any:
    """`value` as a `kind`: a dataclass, a tuple, a dict, an enum, a scalar, or one of them or None.

    Of a dataclass, unknown fields are passed over, and those with a default may be missing.

    Raises:
        MisfitError: it is none.
    """
    origin, arguments = _parts(kind)
    if origin in _SCALARS:
        return _scalar(origin, value, where)
    if origin is UnionType:
        one, none = arguments
        require(none is NoneType, where, value, "of one type")
        return None if value is None else read(one, value, where)
    if origin is Any:
        return _plain(value, where)
    if origin is tuple:
        return _tuple(arguments, value, where)
    if origin is dict:
        return _dict(arguments, value, where)
    if isinstance(origin, type) and is_dataclass(origin):
        return _dataclass(origin, value, where)
    assert issubclass(origin, StrEnum), origin
    require(value in list(origin), where, value, " or ".join(origin))
    return origin(value)


@cache
def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(kind) or kind, get_args(kind)


def require(holds: bool, where: str, value: object, wanted: str) -> None:
    """Raises MisfitError unless it holds."""
    if not holds:
        raise MisfitError(where, value, wanted)


def _tuple(kinds: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    require(isinstance(value, list), where, value, "a list")
    if kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    require(len(value) == len(kinds), where, value, f"a list of {len(kinds)}")
    places = enumerate(zip(kinds, value, strict=True))
    return tuple(read(kind, item, f"{where}[{place}]") for place, (kind, item) in places)


def _dict(kinds: tuple[Any, ...], value: Any, where: str) -> dict[Any, Any]:
    """By ids or by names."""
    require(isinstance(value, dict), where, value, "an object")
    key, item = kinds
    made = {}
    for name, entry in value.items():
        if key is int:
            require(name.isdecimal() and len(name) < 16, where, name, "by token id")
        made[key(read(str, name, where))] = read(item, entry, _below(where, name))
    return made


def _dataclass(cls: Any, value: Any, where: str) -> Any:
    require(isinstance(value, dict), where, value, "an object")
    made = {}
    for name, kind, optional in _fields(cls):
        if name in value:
            made[name] = read(kind, value[name], f"{where}.{name}")
        else:
            require(optional, f"{where}.{name}", "nothing", "there")
    return cls(**made)


@cache
def _fields(cls: Any) -> list[tuple[str, Any, bool]]:
    """Of each field its name, its type and whether it has a default."""
    hints = get_type_hints(cls)
    return [
        (f.name, hints[f.name], not (f.default is MISSING and f.default_factory is MISSING))
        for f in fields(cls)
    ]


def _scalar(kind: type[Any], value: Any, where: str) -> Any:
    if kind is str:
        require(_is_text(value), where, value, "text")
    elif kind is int:
        require(_is_count(value), where, value, "a whole number, not negative")
    else:
        require(_is_measure(value), where, value, "a finite number, not negative")
    return value


def _plain(value: Any, where: str, depth: int = 0) -> Any:
    """What has no known type, but must still be safe to show and to write."""
    if isinstance(value, dict | list):
        require(depth < _DEEPEST, where, value, "less deep")
        named = value.items() if isinstance(value, dict) else (("", entry) for entry in value)
        for name, entry in named:
            require(_is_text(name), where, name, "text")
            _plain(entry, _below(where, name), depth + 1)
    else:
        sound = value is None or isinstance(value, bool) or _is_text(value) or _is_measure(value)
        require(sound, where, value, "text or a finite number")
    return value


def _below(where: str, name: str) -> str:
    """The path of an entry. Its name may be anything, and is told if it is a short word."""
    return f"{where}.{name}" if name.isidentifier() and len(name) < 20 else where


def _is_text(value: object) -> bool:
    """Lone surrogates are no text: no encoding has them."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST


def _is_measure(value: object) -> bool:
    if isinstance(value, float):
        return isfinite(value) and value >= 0
    return _is_count(value)
