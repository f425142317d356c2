"""Why drafted tokens were rejected: each rejection of a run has one cause, by the likeliest tokens
that both models had there.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from pipeline.decoding.events import Candidates
from pipeline.trace.explanation import named
from pipeline.trace.record import StepRecord, Trace
from pipeline.words import percent

SURE = 0.5  # a token that is likelier than all others together


class Cause(NamedTuple):
    """
    Attributes:
        label: the title in two or three words.
        title: what was the case where the draft was rejected.
        remedy: what to try, a sentence without its full stop.
    """

    label: str
    title: str
    remedy: str


CAUSES = {
    "copy": Cause(
        "copy went wrong",
        "A copy that did not go on",
        "Choose a drafter with a model: copies pay where an answer repeats its prompt or itself",
    ),
    "chance": Cause(
        "chance",
        "Both models prefer one token; chance chose another",
        "Lower the temperature or top-p: at temperature 0 these drafts are accepted",
    ),
    "target": Cause(
        "target undecided",
        "The target is undecided",
        "Ask what has one right answer (code, extraction, a context), or take a target that is "
        "surer: no draft guesses these well",
    ),
    "draft": Cause(
        "draft undecided",
        "The draft is undecided, the target is not",
        "Draft fewer tokens, or take auto, which stops at such tokens; a larger or longer trained "
        "draft knows more of them",
    ),
    "disagreement": Cause(
        "sure, but differ",
        "Both models are sure, of different tokens",
        "Check that both have the same prompt format and tokenizer; then try a draft of higher "
        "precision (--draft-weights int8), or one trained on this target’s answers",
    ),
}


@dataclass(frozen=True, slots=True)
class Rejection:
    """A drafted token that the target refused.

    Attributes:
        cause: one of `CAUSES`.
        told: the tokens and their probabilities, with texts of a model as string literals.
    """

    cause: str
    step: int
    told: str


def rejections(trace: Trace) -> list[Rejection]:
    """Those of the speculative lane for which the likeliest tokens were recorded, in order."""
    found = []
    for step in trace.speculative.steps if trace.speculative else ():
        target, draft = (_likeliest(t, step.accepted) for t in (step.target_top, step.draft_top))
        if step.accepted < len(step.drafted) and target and (draft or step.copied):
            told = _told(trace, step, *target)
            found.append(Rejection(_cause(target, draft), step.index, told))
    return found


def _likeliest(tops: tuple[Candidates, ...], place: int) -> tuple[int, float] | None:
    """The likeliest token at a place, and its probability; None where it was not recorded."""
    return next(chain(*tops[place : place + 1]), None)


def _cause(target: tuple[int, float], draft: tuple[int, float] | None) -> str:
    """The cause, by the likeliest token of each model; a copy has none."""
    if draft is None:
        return "copy"
    if draft[0] == target[0]:
        return "chance"
    if target[1] <= SURE:
        return "target"
    return "disagreement" if draft[1] > SURE else "draft"


def _told(trace: Trace, step: StepRecord, best: int, chance: float) -> str:
    drafted, sure = step.drafted[step.accepted], step.confidence(step.accepted)
    of_draft = "" if sure is None else f" ({percent(sure)})"
    return f"{named(trace, drafted)}{of_draft}, target {named(trace, best)} ({percent(chance)})"
