"""`trace@1`: the one record from which everything shown or exported is derived.

A `LaneRecorder` turns a lane's events into a `Lane`; a `Trace` holds the lanes and what they ran
on. Stored are counts and seconds; every rate is a property.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from itertools import chain, groupby, takewhile
from math import isclose
from operator import attrgetter
from typing import Any

from pipeline.decoding.events import (
    Drafted,
    Event,
    Finish,
    FinishReason,
    Origin,
    Prefill,
    Round,
    Step,
    fields_of,
)
from pipeline.errors import UserError
from pipeline.request import MAX_DRAFT_LENGTH, Request
from pipeline.text.tokenizer import Detokenizer
from pipeline.trace.reader import MisfitError, parse, read, require

SCHEMA = "trace@1"

AUTOREGRESSIVE = "autoregressive"
SPECULATIVE = "speculative"

_MOST_CANDIDATES = 5  # of each model at each place
_MODEL_FIELDS = {"id": str, "parameters": int, "weights": str, "bytes": int, "kv_precision": str}


@dataclass(frozen=True, slots=True)
class Token:
    """One emitted token. `time_s` is on its lane's own clock, from the start of prefill."""

    id: int
    text: str  # whole characters only; "" for the end key, or while a character is incomplete
    origin: Origin
    step: int
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord(Round):
    """A round; `time_s` is its lane's clock at its end."""

    time_s: float


@dataclass(frozen=True, slots=True)
class Lane:
    """What one decoder did. The texts of `tokens`, joined, are `text`."""

    prefill_s: float
    finish: FinishReason | None  # None while it runs
    text: str
    tokens: tuple[Token, ...]
    steps: tuple[StepRecord, ...]

    @property
    def decode_s(self) -> float:
        return sum(step.seconds for step in self.steps)

    @property
    def seconds_per_token(self) -> float | None:
        """Decoding only, prefill apart."""
        return self.decode_s / len(self.tokens) if self.tokens else None

    @property
    def tokens_per_second(self) -> float | None:
        return len(self.tokens) / self.decode_s if self.tokens else None

    @property
    def drafted(self) -> int:
        return sum(len(step.drafted) for step in self.steps)

    @property
    def tested(self) -> int:
        return sum(step.tested for step in self.steps)

    @property
    def accepted(self) -> int:
        return sum(step.accepted for step in self.steps)

    @property
    def undrafted(self) -> int:
        """Rounds in which nothing was drafted."""
        return sum(not step.drafted for step in self.steps)

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / tested."""
        return self.accepted / self.tested if self.tested else None

    @property
    def drafted_yield(self) -> float | None:
        """Accepted / drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def block_efficiency(self) -> float | None:
        """Tokens emitted per target run in decoding."""
        return len(self.tokens) / len(self.steps) if self.steps else None


@dataclass(frozen=True, slots=True)
class Trace:
    """One request, answered. `environment`, `pair` and `request` are plain JSON objects.

    `pieces` are the texts, each on its own, of all token ids that the steps name.
    """

    created: str
    environment: dict[str, Any]
    pair: dict[str, Any]
    request: dict[str, Any]
    prompt_tokens: tuple[int, ...]
    lanes: dict[str, Lane]
    pieces: dict[int, str] = field(default_factory=dict)

    @property
    def autoregressive(self) -> Lane | None:
        return self.lanes.get(AUTOREGRESSIVE)

    @property
    def speculative(self) -> Lane | None:
        return self.lanes.get(SPECULATIVE)

    @property
    def greedy(self) -> bool:
        return bool(self.request["temperature"] == 0)

    @property
    def finished(self) -> bool:
        """Every lane came to its own end: nothing was cancelled and nothing failed."""
        ends = (FinishReason.STOP, FinishReason.LENGTH)
        return bool(self.lanes) and all(lane.finish in ends for lane in self.lanes.values())

    @property
    def speedup(self) -> float | None:
        """Autoregressive over speculative seconds per decoded token, prefill apart."""
        if not (self.autoregressive and self.speculative):
            return None
        slow, fast = self.autoregressive.seconds_per_token, self.speculative.seconds_per_token
        return slow / fast if slow and fast else None

    @property
    def agreeing_tokens(self) -> int | None:
        """Tokens from the start in which both lanes agree; None without both lanes."""
        if not (self.autoregressive and self.speculative):
            return None
        pairs = zip(self.autoregressive.tokens, self.speculative.tokens, strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0].id == pair[1].id, pairs))

    @property
    def identical(self) -> bool | None:
        """Both lanes ended and made the same tokens; None where that is not claimed."""
        if not (self.finished and self.greedy and self.autoregressive and self.speculative):
            return None
        made = len(self.autoregressive.tokens)
        return made == len(self.speculative.tokens) == self.agreeing_tokens

    def to_dict(self) -> dict[str, Any]:
        pieces = {str(token): piece for token, piece in self.pieces.items()}
        return {"schema": SCHEMA, **asdict(self), "pieces": pieces}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Trace:
        """Reads what `to_json` wrote, or what anybody else did: all that is shown can rely on it.

        Unknown fields, added later, are passed over.

        Raises:
            UserError: the text is not a `trace@1`.
        """
        try:
            data = parse(text)
            known = isinstance(data, dict) and data.get("schema") == SCHEMA
            require(known, "", data.get("schema") if isinstance(data, dict) else data, SCHEMA)
            return _checked(read(cls, data))
        except MisfitError as error:
            remedy = f"it must be {error.wanted}; choose a file that holds a {SCHEMA}"
            raise UserError(f"trace {error.where}".strip(), error.value, remedy) from None


class LaneRecorder:
    """Turns one lane's events into its `Lane`, a token's text included.

    Args:
        detokenizer: of the lane's text.
        piece: the text of a token on its own.
    """

    def __init__(self, detokenizer: Detokenizer, piece: Callable[[int], str]) -> None:
        self._detokenizer, self._piece = detokenizer, piece
        self.pieces: dict[int, str] = {}
        self._prefill_s = 0.0
        self._time_s = 0.0
        self._finish: FinishReason | None = None
        self._tokens: list[Token] = []
        self._steps: list[StepRecord] = []

    def record(self, event: Event) -> tuple[Token, ...]:
        """Takes the next event; returns the tokens that it emitted."""
        match event:
            case Prefill(seconds=seconds):
                self._prefill_s = self._time_s = seconds
            case Step():
                self._time_s += event.seconds
                self._steps.append(StepRecord(**fields_of(Round, event), time_s=self._time_s))
                for token in _named(event):
                    if token not in self.pieces:
                        self.pieces[token] = self._piece(token)
                made = tuple(self._text(event))
                self._tokens.extend(made)
                return made
            case Finish(reason=reason):
                self._finish = reason
            case Drafted():
                pass  # the step that follows tells what became of these
        return ()

    @property
    def time_s(self) -> float:
        """The lane's own clock."""
        return self._time_s

    @property
    def finished(self) -> bool:
        return self._finish is not None

    def lane(self) -> Lane:
        """The lane as it stands."""
        tokens = tuple(self._tokens)
        text = "".join(token.text for token in tokens)
        return Lane(self._prefill_s, self._finish, text, tokens, tuple(self._steps))

    def _text(self, step: Step) -> Iterable[Token]:
        for token, origin in zip(step.tokens, step.origins, strict=True):
            piece = self._detokenizer.push(token)
            yield Token(token, piece, origin, step.index, self._time_s)


def _named(step: Step) -> Iterable[int]:
    """The token ids in a step."""
    told = chain(*step.target_top, *step.draft_top)
    return chain(step.tokens, step.drafted, (token for token, _ in told))


_LONGEST = 1e6  # seconds; what is longer was not timed


def _checked(trace: Trace) -> Trace:
    """`trace`, once it is sure that its parts belong together.

    Raises:
        MisfitError: they do not.
        UserError: its request is none.
    """
    about = {one.name for one in fields(Request)}
    given = {name: value for name, value in trace.request.items() if name in about}
    require("instruction" in given, "request.instruction", "nothing", "there")
    request = Request(**given)
    try:
        created = datetime.fromisoformat(trace.created).isoformat()
    except ValueError:
        raise MisfitError("created", trace.created, "a time in ISO 8601") from None
    _check_pair(trace.pair)
    read(str, trace.environment.get("cpu", ""), "environment.cpu")
    require(bool(trace.lanes), "lanes", trace.lanes, "one or two")
    for name, lane in trace.lanes.items():
        require(name in (AUTOREGRESSIVE, SPECULATIVE), "lanes", name, "known")
        _check_lane(lane, request.max_new_tokens, f"lanes.{name}")
    return replace(trace, created=created, request={**trace.request, **asdict(request)})


def _check_pair(pair: Mapping[str, Any]) -> None:
    read(str, pair.get("name"), "pair.name")
    models = {role: pair.get(role) for role in ("target", "draft")}
    require(models["target"] is not None, "pair.target", "nothing", "there")
    for role, model in models.items():
        if model is not None:
            read(dict[str, Any], model, f"pair.{role}")
            for name, kind in _MODEL_FIELDS.items():
                read(kind | None, model.get(name), f"pair.{role}.{name}")


def _check_lane(lane: Lane, most: int, where: str) -> None:
    """Its steps follow each other, its tokens are theirs, and its text is theirs."""
    require(len(lane.tokens) <= most, f"{where}.tokens", len(lane.tokens), f"at most {most}")
    text = "".join(token.text for token in lane.tokens)
    require(text == lane.text, f"{where}.text", lane.text, "the texts of its tokens, joined")
    require(lane.prefill_s <= _LONGEST, f"{where}.prefill_s", lane.prefill_s, "shorter")
    clock, by_step = lane.prefill_s, groupby(lane.tokens, attrgetter("step"))
    for index, step in enumerate(lane.steps):
        here = f"{where}.steps[{index}]"
        place, made = next(by_step, (None, iter(())))
        clock += step.seconds
        require(step.index == index == place, f"{here}.index", step.index, f"{index}, with tokens")
        require(clock <= _LONGEST, f"{here}.time_s", clock, "shorter")
        near = isclose(step.time_s, clock, rel_tol=1e-6, abs_tol=1e-6)
        require(near, f"{here}.time_s", step.time_s, f"{clock:.6g}, the sum so far")
        _check_step(step, tuple(made), here)
    extra = next(by_step, None)
    require(extra is None, f"{where}.tokens", "more", "those of its steps")


def _check_step(step: StepRecord, made: tuple[Token, ...], where: str) -> None:
    drafted = len(step.drafted)
    require(drafted <= MAX_DRAFT_LENGTH, f"{where}.drafted", drafted, f"{MAX_DRAFT_LENGTH} at most")
    require(step.accepted <= drafted, f"{where}.accepted", step.accepted, f"{drafted} at most")
    for name in ("draft_prob", "target_prob", "accept_prob", "uniform"):
        values = getattr(step, name)
        require(len(values) == drafted, f"{where}.{name}", len(values), f"{drafted} long")
    tops = (("target_top", step.target_top, len(made)), ("draft_top", step.draft_top, drafted))
    for name, top, length in tops:
        require(len(top) in (0, length), f"{where}.{name}", len(top), f"{length} long")
        require(
            all(len(one) <= _MOST_CANDIDATES for one in top), f"{where}.{name}", "more", "short"
        )
    last = Origin.RESAMPLED if step.accepted < drafted else Origin.BONUS
    origins = [*[Origin.ACCEPTED] * step.accepted, last if drafted else Origin.TARGET]
    fates = [token.origin for token in made]
    told = ", ".join(fates)
    require(fates == origins[: len(made)], f"{where}'s tokens", told, ", ".join(origins))
    ids = tuple(token.id for token in made[: step.accepted])
    require(ids == step.drafted[: len(ids)], f"{where}'s tokens", ids, "the accepted drafts")
