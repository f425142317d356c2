"""Reads a trace from untrusted JSON and validates it.

pydantic checks the types strictly: the dataclasses of `record`, and the objects around them as
described here. Further checks ensure that the parts are consistent with each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from functools import cache
from itertools import groupby, pairwise
from math import isclose
from operator import attrgetter
from typing import Any, Literal, NotRequired, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import SchemaValidator
from typing_extensions import TypedDict  # before Python 3.12, pydantic takes no other

from pipeline.decoding.events import Origin
from pipeline.environment import PoolUse
from pipeline.errors import UserError
from pipeline.request import MAX_DRAFT_LENGTH, Request
from pipeline.trace.record import SCHEMA, Lane, StepRecord, Token, Trace

_LARGEST = 2**53  # larger integers are not exact in JavaScript
_SHORTEST, _LONGEST = 1e-9, 1e6  # seconds of a step, and of a lane
_TOLERANCE = 1e-6  # between times that must be equal; relative, and in seconds
_CANDIDATES = 5  # limit for each model at each position


def parse_trace(text: str) -> Trace:
    """Reads the JSON of a trace. Unknown fields are ignored.

    Raises:
        UserError: the text is not a `trace@1`. It names the path of the first invalid field.
    """
    try:
        return _checked(_validator().validate_json(text, strict=True))
    except ValidationError as error:
        misfit = _misfit(error)
    except _MisfitError as error:
        misfit = error
    remedy = f"it must {misfit.wanted}; choose a file that holds a {SCHEMA}"
    raise UserError(f"trace {misfit.where}".strip(), misfit.value, remedy)


class _Model(TypedDict):
    id: NotRequired[str | None]
    parameters: NotRequired[int | None]
    weights: NotRequired[str | None]
    bytes: NotRequired[int | None]
    pass_bytes: NotRequired[int | None]
    kv_precision: NotRequired[str | None]
    acceptance: NotRequired[list[float]]


class _Pair(TypedDict):
    name: str
    target: _Model
    draft: NotRequired[_Model | None]
    block: NotRequired[_Model | None]
    device: NotRequired[str]
    kv_cache: NotRequired[str]
    kv_block: NotRequired[int | None]
    kv_memory: NotRequired[int | None]
    exact: NotRequired[bool]
    forgets: NotRequired[bool]
    exact_widths: NotRequired[bool]
    pass_costs: NotRequired[list[float] | None]
    note: NotRequired[str]


class _Lanes(TypedDict):
    autoregressive: NotRequired[Lane]
    speculative: NotRequired[Lane]


class _File(TypedDict):
    """The JSON object of a `Trace`."""

    schema: Literal["trace@1"]
    created: str
    environment: dict[str, Any]
    pair: _Pair
    request: dict[str, Any]
    prompt_tokens: tuple[int, ...]
    lanes: _Lanes
    pieces: NotRequired[dict[str, Any]]


_LIMITS: dict[object, dict[str, object]] = {  # by pydantic's name of the type
    # All numbers are counts, seconds or probabilities.
    "int": {"ge": 0, "le": _LARGEST},
    "float": {"ge": 0, "allow_inf_nan": False},
    "tuple": {"fail_fast": True},  # collecting a million errors would take seconds
}


@cache
def _validator() -> SchemaValidator:
    return SchemaValidator(_limited(TypeAdapter(_File).core_schema))


def _limited(schema: Any) -> Any:
    """A pydantic schema with `_LIMITS` added to each number and list in it."""
    if isinstance(schema, list):
        return [_limited(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    parts = {name: _limited(part) for name, part in schema.items()}
    return parts | _LIMITS.get(schema.get("type"), {})


class _MisfitError(Exception):
    """A value that is invalid at its place.

    Args:
        where: the path of the field.
        value: its value; a list or an object is shown by its type.
        wanted: the requirement, as in "be text".
    """

    def __init__(self, where: str, value: object, wanted: str) -> None:
        super().__init__(where, value, wanted)
        self.where, self.wanted = where, wanted
        self.value = type(value).__name__ if isinstance(value, list | tuple | dict) else value


def _require(holds: bool, where: str, value: object, wanted: str) -> None:
    if not holds:
        raise _MisfitError(where, value, wanted)


def _misfit(error: ValidationError) -> _MisfitError:
    """The first of pydantic's errors, whose texts are like "Input should be a valid string"."""
    first = error.errors(include_url=False, include_context=False)[0]
    where = "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in first["loc"])
    value, wanted = first["input"], first["msg"].partition(" should ")[2]
    if first["type"] == "missing":
        value, wanted = "nothing", "be there"
    elif first["type"] == "json_invalid":
        value, wanted = first["msg"], "be JSON"
    return _MisfitError(where.lstrip("."), value, wanted)


def _checked(file: _File) -> Trace:
    """The trace, after checks that its parts are consistent.

    Raises:
        UserError: its request is invalid.
    """
    known = {one.name for one in fields(Request)}
    asked = {name: value for name, value in file["request"].items() if name in known}
    _require("instruction" in asked, "request.instruction", "nothing", "be there")
    request = Request(**asked)
    try:
        created = datetime.fromisoformat(file["created"]).isoformat()
    except ValueError:
        raise _MisfitError("created", file["created"], "be a time in ISO 8601") from None
    _check_environment(file["environment"])
    lanes = cast(dict[str, Lane], file["lanes"])
    _require(bool(lanes), "lanes", lanes, "have one or two of this program's")
    for name, lane in lanes.items():
        _check_lane(lane, request.max_new_tokens, f"lanes.{name}")
    trace = Trace(
        created=created,
        environment=file["environment"],
        pair={**file["pair"]},
        request=request.recorded,
        prompt_tokens=file["prompt_tokens"],
        lanes=lanes,
        pieces=_pieces(file.get("pieces", {})),
    )
    for name, lane in lanes.items():
        _check_tests(lane, trace.verifies_blocks, f"lanes.{name}")
    return trace


def _check_environment(environment: Mapping[str, Any]) -> None:
    """Checks that its values are plain, so that they can be shown and written again."""
    for value in environment.values():
        finite = isinstance(value, int | float) and abs(value) <= _LARGEST
        plain = value is None or finite or isinstance(value, str)
        _require(plain, "environment", value, "have values that are text or finite numbers")


def _pieces(pieces: Mapping[str, Any]) -> dict[int, str]:
    for token, text in pieces.items():
        is_id = token.isascii() and token.isdecimal() and len(token) < 16
        _require(is_id, "pieces", token, "be a token id")
        _require(isinstance(text, str), f"pieces.{token}", text, "be text")
    return {int(token): text for token, text in pieces.items()}


def _check_lane(lane: Lane, max_tokens: int, where: str) -> None:
    """Checks that steps are consecutive, and that tokens and text belong to them."""
    count = len(lane.tokens)
    _require(count <= max_tokens, f"{where}.tokens", count, f"be at most {max_tokens}")
    text = "".join(token.text for token in lane.tokens)
    _require(text == lane.text, f"{where}.text", lane.text, "be the texts of its tokens, joined")
    _require(lane.prefill_s <= _LONGEST, f"{where}.prefill_s", lane.prefill_s, "be shorter")
    clock, by_step = lane.prefill_s, groupby(lane.tokens, attrgetter("step"))
    for index, step in enumerate(lane.steps):
        here = f"{where}.steps[{index}]"
        at, emitted = next(by_step, (None, iter(())))
        _require(step.index == index == at, f"{here}.index", step.index, f"be {index}, with tokens")
        _require(step.seconds >= _SHORTEST, f"{here}.verify_s", step.verify_s, "be longer")
        clock += step.seconds
        _require(clock <= _LONGEST, f"{here}.time_s", clock, "be shorter")
        _require_time(step.time_s, clock, f"{here}.time_s")
        _check_step(step, tuple(emitted), here)
    extra = next(by_step, None)
    _require(extra is None, f"{where}.tokens", "more", "be those of its steps")


def _require_time(seconds: float, expected: float, where: str) -> None:
    near = isclose(seconds, expected, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    _require(near, where, seconds, f"be {expected:.6g}, the sum so far")


def _check_tests(lane: Lane, as_blocks: bool, where: str) -> None:
    """Checks that every tested token has its probabilities: those up to the first rejection, or all
    of a block. Earlier versions recorded those of every drafted token.
    """
    for index, step in enumerate(lane.steps):
        drafted = len(step.drafted)
        tested = drafted if as_blocks and not step.copied else step.tested
        for name in ("target_prob", "accept_prob"):
            length = len(getattr(step, name))
            wanted = f"be {tested} to {drafted} long"
            within = tested <= length <= drafted
            _require(within, f"{where}.steps[{index}].{name}", length, wanted)


def _check_step(step: StepRecord, emitted: Sequence[Token], where: str) -> None:
    """Checks that its lists have one length, and that its tokens follow from its draft."""
    drafted = len(step.drafted)
    limit = MAX_DRAFT_LENGTH
    _require(drafted <= limit, f"{where}.drafted", drafted, f"be at most {limit} long")
    _require(step.accepted <= drafted, f"{where}.accepted", step.accepted, f"be at most {drafted}")
    for name in ("draft_prob", "uniform"):
        length = len(getattr(step, name))
        _require(length == drafted, f"{where}.{name}", length, f"be {drafted} long")
    for name, expected in (("target_top", len(emitted)), ("draft_top", drafted)):
        top = getattr(step, name)
        _require(len(top) in (0, expected), f"{where}.{name}", len(top), f"be {expected} long")
        longest = max(map(len, top), default=0)
        within = longest <= _CANDIDATES
        _require(within, f"{where}.{name}", longest, f"be at most {_CANDIDATES} tokens each")
    for name in ("target_pool", "draft_pool"):
        if pool := getattr(step, name):
            _check_pool(pool, f"{where}.{name}")
    for token in emitted:
        _require_time(token.time_s, step.time_s, f"{where}'s tokens")
    last = Origin.RESAMPLED if step.accepted < drafted else Origin.BONUS
    found = [token.origin for token in emitted]
    accepted = Origin.REMEMBERED if Origin.REMEMBERED in found else Origin.ACCEPTED
    origins = [*[accepted] * step.accepted, last if drafted else Origin.TARGET]
    same = found == origins[: len(found)]
    _require(same, f"{where}'s tokens", ", ".join(found), f"be {', '.join(origins)}")
    ids = tuple(token.id for token in emitted[: step.accepted])
    _require(ids == step.drafted[: len(ids)], f"{where}'s tokens", ids, "be the accepted drafts")


def _check_pool(pool: PoolUse, where: str) -> None:
    """Checks that what is a part of its blocks is no more than them."""
    order = ("shared", "used", "blocks")
    for part, whole in pairwise(order):
        count, most = getattr(pool, part), getattr(pool, whole)
        _require(count <= most, f"{where}.{part}", count, f"be at most {most}")
    most = pool.high_water
    _require(pool.used <= most, f"{where}.used", pool.used, f"be at most {most}")
