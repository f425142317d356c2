"""Failure signatures: what goes wrong in a run, named while it goes on, and what to do about it.

Depends on the record and on how much memory is used; not on how signatures are shown. Everything
follows from the record so far, and each signature ends later than it begins, so that none comes and
goes from one moment to the next.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from pipeline.environment import MemoryUse
from pipeline.errors import LogitsError
from pipeline.trace.metrics import Acceptance, measured
from pipeline.trace.record import Lane, Trace
from pipeline.trace.repetition import body, collapsed, repeats
from pipeline.words import percent

WINDOW = 16  # tested drafts
_CONFIDENCE = 0.99  # whenever the share of the window falls under break-even
_ERRORS = 2.0  # standard errors of the medians that break-even follows from, in its favour
NEAR = 0.9  # of a limit of memory
_IDLE_ROUNDS = 8  # without a draft: drafting has stopped, and costs nothing
_IDLE_ROUNDS_OF_AUTO = 2  # it expects no gain; in one alone, the budget may have run out
_HELD = 8  # tokens without a repetition, before it counts as over


class Kind(NamedTuple):
    """
    Attributes:
        title: the name of the signature.
        when: it is named, a sentence without its full stop.
        remedy: what to do, likewise; the finding may have a better one.
        example: how to see it.
    """

    title: str
    when: str
    remedy: str
    example: str


KINDS = {  # the most severe first
    "logits": Kind(
        "Logits that are no numbers",
        "A model’s largest logit is not finite, or a drafted token is none of the target’s. "
        "Both are seen on rows that decoding reads anyway; the run ends with one line",
        "Convert the model again, or choose f32 weights",
        "Damage a weight of an IR; a test does",
    ),
    "memory": Kind(
        "Memory near its limit",
        f"The process has used {percent(NEAR)} of the memory of its machine or container, or the "
        "KV caches as much of --kv-memory",
        "Choose fewer new tokens, int4 weights or a smaller pair",
        "Start with a low --kv-memory and ask for a long answer, or the container with a low "
        "--memory",
    ),
    "text": Kind(
        "Text that repeats itself",
        "An answer ends in the same 1 to 40 tokens three times or more, has a line three times, or "
        "its last 24 tokens are of three kinds at most",
        "Raise the temperature, or ask in other words",
        "Ask the embedded pair: Write a dialogue between two parrots that repeat each other.",
    ),
    "acceptance": Kind(
        "Acceptance under break-even",
        f"Of the last {WINDOW} tested drafts, a smaller share was accepted than break-even, and so "
        f"few since the share fell there that, with {percent(_CONFIDENCE)} confidence, drafting "
        "costs more time than it saves. The confidence allows for a look after every round, and "
        "for measured times that vary. It is over when the share is at break-even again, or when "
        "drafting has stopped: with Auto, after two rounds without a draft",
        "Choose Auto, or another drafter",
        "The example with high temperature and eight drafts",
    ),
}


@dataclass(frozen=True, slots=True)
class Signature:
    """One signature of a run.

    Attributes:
        name: one of `KINDS`.
        finding: what was found, with its figures; a sentence without its full stop.
        remedy: what to do, likewise.
    """

    name: str
    finding: str
    remedy: str

    @property
    def title(self) -> str:
        return KINDS[self.name].title


def signatures(
    trace: Trace,
    memory: Iterable[MemoryUse] = (),
    failure: BaseException | None = None,
    before: Iterable[Signature] = (),
) -> tuple[Signature, ...]:
    """The signatures of a run as it stands, the most severe first.

    Args:
        trace: the record so far.
        memory: the most that was used of each limit.
        failure: what ended the run, if it failed.
        before: what was found a moment ago, when the costs of the run were known less well.
    """
    under = "acceptance" in {each.name for each in before}
    near = [use for use in memory if use.share >= NEAR]
    found = [
        _named("logits", f"{failure.field} {failure.value}", failure.remedy)
        if isinstance(failure, LogitsError)
        else None,
        *(_named("memory", _used(use), use.remedy) for use in near),
        _named("text", _repetition(trace)),
        _named("acceptance", _acceptance(trace, under)),
    ]
    return tuple(filter(None, found))


def _named(name: str, finding: str, remedy: str = "") -> Signature | None:
    return Signature(name, finding, remedy or KINDS[name].remedy) if finding else None


def _used(use: MemoryUse) -> str:
    return f"{use.what} has used {percent(use.share)} of {use.limit / 1e9:.1f} GB"


def _repetition(trace: Trace) -> str:
    """Which answers repeat themselves; "" if none does."""
    names = [name for name, lane in trace.lanes.items() if _repeats(lane)]
    if not names:
        return ""
    answers = "both answers repeat" if len(names) == 2 else f"the {names[0]} answer repeats"
    return f"{answers} the same words"


def _repeats(lane: Lane) -> bool:
    """Whether it does, or did a few tokens ago if it goes on: it may find an end."""
    tokens, every = body(lane), [token.id for token in lane.tokens]
    if lane.finish is not None:
        return repeats(tokens, lane.text) or collapsed(every)
    latest = range(min(_HELD, len(tokens)) + 1)
    return collapsed(every) or any(
        repeats(tokens[: len(tokens) - back], lane.text) for back in latest
    )


def _acceptance(trace: Trace, before: bool) -> str:
    """How far the latest tests are under break-even, by the costs of this run; "" if they are not,
    or if a lane or more tests are missing.

    It begins where all tests since their share fell under break-even, which may be more than
    these, are evidence enough against the lower end of break-even's own interval. It goes on until
    the share is at break-even, also where costs measured since would not have begun it.
    """
    model, cautious, lane = measured(trace), measured(trace, _ERRORS), trace.speculative
    if model is None or cautious is None or lane is None:
        return ""
    needed, least = (
        math.inf if each.break_even is None else each.break_even for each in (model, cautious)
    )
    stopped = _IDLE_ROUNDS_OF_AUTO if trace.request["draft_length"] == "auto" else _IDLE_ROUNDS
    latest: deque[bool] = deque(maxlen=WINDOW)
    tested = accepted = idle = 0  # since the share was at break-even
    under = False
    for step in lane.steps:
        idle = 0 if step.drafted else idle + 1
        latest.extend([True] * step.accepted + [False] * (step.tested - step.accepted))
        tested, accepted = tested + step.tested, accepted + step.accepted
        if idle >= stopped:
            latest.clear()
        full = len(latest) == WINDOW
        if idle >= stopped or (full and sum(latest) / WINDOW >= needed):
            tested, accepted, under = 0, 0, False
        elif full:
            evidence = Acceptance(tested, accepted).evidence_under(least)
            under = under or evidence >= 1 / (1 - _CONFIDENCE)
    share = sum(latest) / WINDOW
    if not under and not (before and len(latest) == WINDOW and share < needed):
        return ""
    pays = f"pays from {percent(needed)}" if needed <= 1 else "never pays"
    return f"{sum(latest)} of the last {WINDOW} tests accepted; K = {model.length} {pays}"
