"""What a decoder says while it works: frozen, plain, picklable. Token ids, never text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

Candidates = tuple[tuple[int, float], ...]  # tokens with their probabilities, the likeliest first


class Origin(StrEnum):
    """Where a token came from (the words of Chen et al. 2023, arXiv 2302.01318)."""

    TARGET = "target"  # the target's own, with nothing drafted before it
    ACCEPTED = "accepted"  # drafted, and passed the target's test
    RESAMPLED = "resampled"  # replaces the first rejected draft
    BONUS = "bonus"  # the extra target token after a full acceptance


class FinishReason(StrEnum):
    STOP = "stop"  # the end key
    LENGTH = "length"  # the token budget, or the context, is used up
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Prefill:
    """The prompt is in the caches. `seconds` is all of it, the draft's included."""

    prompt_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Drafted:
    """Tokens proposed and not yet verified; the step that follows contains their cost."""

    step: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One target run and what it yielded.

    The lists over drafted tokens all have the length of `drafted`. Of those only the first
    `tested` were tested: tokens after the first rejection never are. `uniform` holds the number
    drawn where one was needed, that is where the accept probability was neither 0 nor 1.

    The likeliest tokens are of the distributions that were tested; greedy, of the models' own, at
    temperature 1. They are there if the decoder was asked for them.
    """

    index: int
    tokens: tuple[int, ...]  # emitted, at least one
    origins: tuple[Origin, ...]
    draft_s: float
    verify_s: float
    other_s: float
    drafted: tuple[int, ...] = ()
    accepted: int = 0
    draft_prob: tuple[float, ...] = ()
    target_prob: tuple[float, ...] = ()
    accept_prob: tuple[float, ...] = ()
    uniform: tuple[float | None, ...] = ()
    target_top: tuple[Candidates, ...] = ()  # of each token emitted: the target's likeliest there
    draft_top: tuple[Candidates, ...] = ()  # of each token drafted: the draft model's
    target_kv_len: int = 0  # tokens kept in the cache after this step's rollback
    draft_kv_len: int = 0
    target_kv_bytes: int = 0
    draft_kv_bytes: int = 0

    @property
    def seconds(self) -> float:
        """The step's whole cost."""
        return self.draft_s + self.verify_s + self.other_s


@dataclass(frozen=True, slots=True)
class Finish:
    reason: FinishReason


Event = Prefill | Drafted | Step | Finish
