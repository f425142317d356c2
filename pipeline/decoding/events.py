"""The events that a decoder yields: frozen, picklable dataclasses with token ids, never text."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import chain
from typing import Any

Candidates = tuple[tuple[int, float], ...]  # tokens and probabilities, in descending order

AUTOREGRESSIVE, SPECULATIVE = "autoregressive", "speculative"  # the names of the lanes


@dataclass(frozen=True, slots=True)
class Logprob:
    """Natural logarithms of a model's own probabilities: at temperature 1, of all tokens.

    Attributes:
        value: that of the emitted token.
        top: the most likely tokens, with theirs.
    """

    value: float
    top: Candidates


class Origin(StrEnum):
    """How a token was generated (terms of Chen et al. 2023, arXiv 2302.01318)."""

    TARGET = "target"  # the target's own, with nothing drafted before it
    ACCEPTED = "accepted"  # drafted, and accepted by the target
    REMEMBERED = "remembered"  # accepted too: drafted by copying from an earlier text
    RESAMPLED = "resampled"  # replaces the first rejected draft
    BONUS = "bonus"  # the extra target token after a full acceptance

    @property
    def kept(self) -> bool:
        """Whether the token was drafted and accepted."""
        return self in (Origin.ACCEPTED, Origin.REMEMBERED)


class FinishReason(StrEnum):
    STOP = "stop"  # the end key, or a stop text
    LENGTH = "length"  # the token budget, or the context, is used up
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Prefill:
    """The prompt is in the caches; `seconds` includes the draft's prefill."""

    prompt_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Drafted:
    """Tokens proposed and not yet verified; the step that follows contains their cost. `copied`: no
    model computed them.
    """

    step: int
    tokens: tuple[int, ...]
    copied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """How a draft was verified.

    Attributes:
        accepted: tokens accepted. Token by token, none is tested after the first rejection; as a
            block, all are.
        draft_prob: the probability that the draft gives each drafted token.
        target_prob: the probability that the target gives each tested token.
        accept_prob: the probability that each tested token is accepted.
        uniform: for each drafted token the random number, where one was drawn. Token by token: if
            it is tested and its accept probability is neither 0 nor 1; as a block: from the last
            token down to the accepted one.
    """

    accepted: int = 0
    draft_prob: tuple[float, ...] = ()
    target_prob: tuple[float, ...] = ()
    accept_prob: tuple[float, ...] = ()
    uniform: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Round(Verification):
    """One forward pass of the target: its draft, the draft's verification, and the cost.

    The most likely tokens are of the distributions that were compared; with greedy decoding, of the
    models' own at temperature 1. They are recorded if the decoder has `candidates`.
    """

    index: int
    draft_s: float
    verify_s: float
    other_s: float
    drafted: tuple[int, ...] = ()
    target_top: tuple[Candidates, ...] = ()  # for each emitted token: the target's most likely
    draft_top: tuple[Candidates, ...] = ()  # for each drafted token: the draft model's
    target_kv_len: int = 0  # tokens kept in the cache after this round's rollback
    draft_kv_len: int = 0
    target_kv_bytes: int = 0
    draft_kv_bytes: int = 0
    target_rolled_back: int | None = None  # tokens dropped from the cache at the end of this round;
    draft_rolled_back: int | None = None  # None in a record made before this was counted
    draft_passes: int | None = None  # forward passes that made the draft; likewise
    cpu_s: float | None = None  # CPU time of what `seconds` measures, by a `Meter`; likewise
    joules: float | None = None  # likewise; None also where the machine does not report it

    @property
    def seconds(self) -> float:
        """The round's whole cost."""
        return self.draft_s + self.verify_s + self.other_s

    @property
    def tested(self) -> int:
        """Drafted tokens up to and including the first rejected one; later ones are not tested."""
        return min(self.accepted + 1, len(self.drafted))

    @property
    def named(self) -> set[int]:
        """The ids of the drafted and of the most likely tokens."""
        candidates = chain(*self.target_top, *self.draft_top)
        return {*self.drafted, *(token for token, _ in candidates)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Round):
    """A round, and the tokens that it emitted: at least one; of each, the target's log-probability
    if the decoder was asked for it.
    """

    tokens: tuple[int, ...]
    origins: tuple[Origin, ...]
    logprobs: tuple[Logprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Finish:
    reason: FinishReason


Event = Prefill | Drafted | Step | Finish


def fields_of(kind: type[Round | Verification], one: Verification) -> dict[str, Any]:
    """The fields of `kind`, by name, of an instance of it or of a subclass."""
    return {field.name: getattr(one, field.name) for field in fields(kind)}
