"""Changes at random places of JSON records, from a seeded generator."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from copy import deepcopy
from random import Random
from typing import Any

Path = tuple[Any, ...]  # names and indices, from the outside in

STRANGE: Sequence[Any] = (
    *(None, True, False, 0, 1, -1, 3, 0.5, -0.0, 1e-300, 1e300, float("inf"), float("nan")),
    *(2**31, 2**63, -(2**63), 10**400, "", " ", "0", "nan", "\0", "\n", "\ud800", "²", "🐕\u202e"),
    *("x" * 100, "x" * 120_000, "../../etc/passwd", "/etc/passwd", "<script>alert(1)</script>"),
    *("__proto__", "{{x}}", "%s%n", [], {}, [[]], [None], {"": None}, {"path": "/etc/passwd"}),
    *([0] * 1_000, [[[[[[[[]]]]]]]], {"meta": {"_type": "gradio.FileData"}, "path": "x"}),
)
_FACTORS = (0, -1, 10, 1e-12, 1e-300, 1e12)
_MOST = 3  # changes of a record, and of its text
_TEXTS = 0.2  # share of the mutants whose text is changed too


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Of everything in a record."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for name, entry in inner:
        yield (*path, name)
        if isinstance(entry, dict | list):
            yield from paths(entry, (*path, name))


def at(record: Any, path: Path) -> Any:
    """What is there."""
    for name in path:
        record = record[name]
    return record


def changed(record: Any, path: Path, value: Any) -> None:
    """Puts the value there; the class `KeyError` removes what is there."""
    *parents, last = path
    if value is KeyError:
        del at(record, tuple(parents))[last]
    else:
        at(record, tuple(parents))[last] = value


def mutated(record: Any, random: Random) -> Any:
    """A copy of a record with one to three changes."""
    record = deepcopy(record)
    for _ in range(random.randint(1, _MOST)):
        every = list(paths(record))
        if every:
            path = random.choice(every)
            changed(
                record, path, _other(at(record, path), at(record, random.choice(every)), random)
            )
    return record


def mutated_text(record: Any, random: Random) -> str:
    """The JSON of a changed copy; of some, the text is changed as well."""
    text = json.dumps(mutated(record, random))
    if random.random() > _TEXTS:
        return text
    for _ in range(random.randint(1, _MOST)):
        begin, end = sorted(random.choices(range(len(text) + 1), k=2))
        end = min(end, begin + 20)
        before, within, after = text[:begin], text[begin:end], text[end:]
        strange = chr(random.randrange(0x250))
        text = before + random.choice(("", after, strange + after, within + within + after))
    return text


def _other(value: Any, elsewhere: Any, random: Random) -> Any:
    """What may take the place of a value: among others, what is elsewhere in the record."""
    kind = random.randrange(5)
    if kind == 0:
        return KeyError
    if kind == 1:
        return deepcopy(elsewhere)
    if kind == 2 and isinstance(value, list) and value:
        return random.choice((value[:-1], value[::-1], value + value[-1:], value * 2))
    if kind == 2 and isinstance(value, int | float) and abs(value) < 1e300:
        return value * random.choice(_FACTORS)
    return deepcopy(random.choice(STRANGE))  # it may be changed again
