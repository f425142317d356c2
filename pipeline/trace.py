"""`trace@1`: the one record from which everything shown or exported is derived.

A `LaneRecorder` turns a lane's events into a `Lane`; a `Trace` holds the lanes and what they ran
on. Stored are counts and seconds; every rate is a property.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import chain, takewhile
from typing import Any

from pipeline.errors import UserError
from pipeline.events import Candidates, Drafted, Event, Finish, FinishReason, Origin, Prefill, Step
from pipeline.tokenizer import Detokenizer

SCHEMA = "trace@1"

AUTOREGRESSIVE = "autoregressive"
SPECULATIVE = "speculative"


@dataclass(frozen=True, slots=True)
class Token:
    """One emitted token. `time_s` is on its lane's own clock, from the start of prefill."""

    id: int
    text: str  # whole characters only; "" for the end key, or while a character is incomplete
    origin: Origin
    step: int
    time_s: float


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One target run. The fields are `events.Step`'s, with `time_s`, the clock at its end."""

    index: int
    draft_s: float
    verify_s: float
    other_s: float
    time_s: float
    drafted: tuple[int, ...]
    accepted: int
    draft_prob: tuple[float, ...]
    target_prob: tuple[float, ...]
    accept_prob: tuple[float, ...]
    uniform: tuple[float | None, ...]
    target_kv_len: int
    draft_kv_len: int
    target_kv_bytes: int
    draft_kv_bytes: int
    target_top: tuple[Candidates, ...] = ()
    draft_top: tuple[Candidates, ...] = ()

    @property
    def seconds(self) -> float:
        """The step's whole cost."""
        return self.draft_s + self.verify_s + self.other_s

    @property
    def tested(self) -> int:
        """Drafts up to and with the first rejected one; those after it were never tested."""
        return min(self.accepted + 1, len(self.drafted))


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
        """Reads what `to_json` wrote; unknown fields, added later, are passed over.

        Raises:
            UserError: the text is not a `trace@1`.
        """
        remedy = f"choose a file that holds a {SCHEMA}"
        try:
            data = json.loads(text)
            if data["schema"] != SCHEMA:
                raise UserError("trace", data["schema"], remedy)
            lanes = {name: _lane(lane) for name, lane in data["lanes"].items()}
            known = {key: data[key] for key in ("created", "environment", "pair", "request")}
            pieces = {int(token): str(piece) for token, piece in data.get("pieces", {}).items()}
            prompt = tuple(data["prompt_tokens"])
            return cls(**known, prompt_tokens=prompt, lanes=lanes, pieces=pieces)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError("trace", f"{type(error).__name__} {error}", remedy) from None


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
                self._steps.append(_step(event, self._time_s))
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


_STEP_FIELDS = tuple(known.name for known in fields(StepRecord) if known.name != "time_s")


def _named(step: Step) -> Iterable[int]:
    """The token ids in a step."""
    told = chain(*step.target_top, *step.draft_top)
    return chain(step.tokens, step.drafted, (token for token, _ in told))


def _step(step: Step, time_s: float) -> StepRecord:
    return StepRecord(**{name: getattr(step, name) for name in _STEP_FIELDS}, time_s=time_s)


def _lane(data: Mapping[str, Any]) -> Lane:
    finish = FinishReason(data["finish"]) if data["finish"] is not None else None
    tokens = tuple(_known(Token, {**t, "origin": Origin(t["origin"])}) for t in data["tokens"])
    steps = tuple(_known(StepRecord, step) for step in data["steps"])
    return Lane(data["prefill_s"], finish, data["text"], tokens, steps)


def _known(cls: type[Any], data: Mapping[str, Any]) -> Any:
    """`cls` from those of `data` that are its fields; those added later may be missing."""
    names = [known.name for known in fields(cls)]
    return cls(**{name: _frozen(data[name]) for name in names if name in data})


def _frozen(value: Any) -> Any:
    """JSON's lists as tuples."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
