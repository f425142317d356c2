"""The tour: seven stops on the run that the page shows, and three questions about it.

Every figure is of the trace. Where the run has no such token, the stop says so and how to get one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import gradio as gr

from pipeline.decoding.events import SPECULATIVE, Origin
from pipeline.trace.explanation import duration, explain, quoted
from pipeline.trace.metrics import LOST, not_compared, outcome, prediction, yields
from pipeline.trace.record import Lane, StepRecord, Trace
from pipeline.words import counted, percent
from ui.component import component, encode
from ui.laboratory import STUDIES
from ui.plots.figure import milliseconds
from ui.tabs.how import rejection

NAME = "tour"


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop of the tour; `stops.js` knows its control by `name`.

    Attributes:
        text: one thing, in two sentences.
        task: what the visitor does there; "" where the run has nothing to do it with.
        step: of the speculative lane that it is about; None for none.
        at_ms: the model time to go to: when that step's draft waits, or is verified.
    """

    name: str
    title: str
    text: str
    task: str
    step: int | None = None
    at_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and its answer from the run."""

    question: str
    answer: str


def add(first: str) -> gr.HTML:
    """Adds the tour to the page being built, with its first value."""
    return component(NAME, "tour/tour", first)


def value(trace: Trace, live: bool) -> str:
    """The value of its view, for a run that has ended.

    Args:
        live: the visitor's own race, on which a guess is told.
    """
    compared = not not_compared(trace)
    return encode(
        {
            "live": live,
            "speedup": trace.speedup if compared else None,
            "outcome": outcome(trace.speedup) if compared and trace.speedup else None,
            "stops": [asdict(stop) for stop in stops(trace)],
            "questions": [asdict(question) for question in questions(trace)],
        }
    )


# --- the stops ------------------------------------------------------------------------------------


def stops(trace: Trace) -> list[Stop]:
    """The stops, in the order of `link.STOPS`."""
    each = (_race, _token, _draft, _verify, _rejection, _bonus, _loss)
    return [stop(trace) for stop in each]


def _race(trace: Trace) -> Stop:
    kept = "but it is not changed"
    if trace.lossy:
        kept = "and this run lets it change: typical acceptance is lossy"
    text = (
        "The same question is answered twice: by the target model alone, and with drafts that it "
        f"verifies. The answer may arrive sooner, {kept}."
    )
    return Stop("race", "Race both methods", text, "Press Run both. You may guess first.")


def _token(trace: Trace) -> Stop:
    title = "A token and its origin"
    fast = trace.speculative
    if not (fast and fast.tokens):
        return Stop("token", title, "This run has no speculative answer. Run both to get one.", "")
    token = next((token for token in fast.tokens if token.origin.kept), fast.tokens[0])
    of_origin = sum(one.origin is token.origin for one in fast.tokens)
    text = (
        f"{quoted(token.text)} is {token.origin.value}: its colour and underline show where it "
        f"came from. So are {of_origin} of the {len(fast.tokens)} tokens of this answer."
    )
    task = "Open its card: click it, or press Show me."
    return Stop("token", title, text, task, token.step)


def _draft(trace: Trace) -> Stop:
    title = "A draft"
    step = _best_draft(trace.speculative)
    if step is None:
        return _nothing_drafted("draft", title)
    explained = explain(trace, SPECULATIVE, step)
    text = (
        f"In step {step.index + 1}, {explained.drafting}. Until the target has verified them, they "
        "are dashed."
    )
    task = "Go to the moment when they wait: use the replay bar, or press Show me."
    return Stop("draft", title, text, task, step.index, milliseconds(step.drafted_at_s))


def _verify(trace: Trace) -> Stop:
    title = "One forward pass verifies all"
    fast, slow = trace.speculative, trace.autoregressive
    step = _best_draft(fast)
    if fast is None or step is None:
        return _nothing_drafted("verify", title)
    text = f"{explain(trace, SPECULATIVE, step).verification}. "
    if slow and slow.median_step_s:
        text += (
            f"A pass for a single token takes {duration(slow.median_step_s)} here, the median of "
            "the autoregressive answer."
        )
    else:
        text += f"The step gave {counted(len(fast.emitted[step.index]), 'token')} to the answer."
    task = "Step forward until the draft is verified, or press Show me."
    return Stop("verify", title, text, task, step.index, milliseconds(step.time_s))


def _rejection(trace: Trace) -> Stop:
    title = "A rejection" if trace.lossy else "A rejection, and why the text stays the same"
    fast = trace.speculative
    if not (fast and fast.drafted):
        return _nothing_drafted("rejection", title)
    step = rejection(fast)
    if step is None:
        text = (
            "No token of this run replaces a rejected draft. A higher temperature or a longer "
            "draft length in Settings makes a rejection likely."
        )
        return Stop("rejection", title, text, "")
    text = explain(trace, SPECULATIVE, step).tokens[-1].sentence
    task = "Open the card of the token that replaced it, or press Show me."
    return Stop("rejection", title, text, task, step.index)


def _bonus(trace: Trace) -> Stop:
    title = "A bonus"
    fast = trace.speculative
    if not (fast and fast.drafted):
        return _nothing_drafted("bonus", title)
    token = next((token for token in fast.tokens if token.origin is Origin.BONUS), None)
    if token is None:
        text = (
            "No draft of this run was accepted in full and followed by one more token. A shorter "
            "draft length in Settings makes a bonus likely."
        )
        return Stop("bonus", title, text, "")
    (step,) = (step for step in fast.steps if step.index == token.step)
    explained = explain(trace, SPECULATIVE, step).tokens[-1]
    text = f"In step {step.index + 1}, {explained.name} is a bonus. {explained.reason}"
    return Stop("bonus", title, text, "Open its card, or press Show me.", token.step)


def _loss(trace: Trace) -> Stop:
    reason = not_compared(trace)
    speedup = trace.speedup
    if reason or speedup is None:
        text = f"This run is not compared: {reason}. "
    else:
        text = f"Speculative decoding took {1 / speedup:.2f}× the time per token in this run. "
        predicted = prediction(trace)
        if predicted:
            even = predicted.model.break_even
            point = "at no acceptance"
            if even is not None:
                point = f"above an acceptance of {percent(even)}"
            text = (
                f"This run was {speedup:.2f}× as fast with drafts; on its costs, they are predicted"
                f" to pay {point}. "
            )
    task = ""
    if "useless" in STUDIES:
        shown = STUDIES["useless"].title
        text += f"The experiment “{shown}” shows a draft that only costs time."
        task = "Open the tab Experiments, or press Show me."
    return Stop("loss", "When it loses", text, task)


def _nothing_drafted(name: str, title: str) -> Stop:
    text = (
        "Nothing was drafted in this run. Choose a fixed draft length in Settings, and press Run "
        "both."
    )
    return Stop(name, title, text, "")


def _best_draft(lane: Lane | None) -> StepRecord | None:
    """The drafted step that kept the most tokens, the first of these; None where there is none."""
    drafted = [step for step in lane.steps if step.drafted] if lane else []
    return max(drafted, key=lambda step: step.accepted, default=None)


# --- the questions --------------------------------------------------------------------------------


def questions(trace: Trace) -> list[Question]:
    """Three questions about a run that drafted; none about another."""
    fast = trace.speculative
    return [*_questions(trace, fast)] if fast and fast.drafted else []


def _questions(trace: Trace, fast: Lane) -> Iterator[Question]:
    longest, fewest = longest_draft(fast), fewest_passes(fast)
    yield Question(
        "How many forward passes of the target would a draft that is always right have needed?",
        f"{fewest}: {counted(len(fast.tokens), 'token')}, {longest + 1} a pass with drafts of "
        f"{longest}. This run needed {len(fast.steps)}.",
    )
    rejected, unused = (sum(counts[name] for counts in yields(fast)) for name in LOST)
    yield Question(
        "How many drafted tokens are not in the text?",
        f"{rejected + unused} of {fast.drafted}: {rejected} were rejected, and {unused} came after "
        "a rejection or after the end.",
    )
    most = fast.block_efficiency or 0.0
    speedup = None if not_compared(trace) else trace.speedup
    measured = "" if speedup is None else f" The measured speedup is {speedup:.2f}×."
    yield Question(
        "How much faster would this run be at most, if drafting and verifying were free?",
        f"{most:.2f}×: as many tokens came from each forward pass of the target.{measured}",
    )


def longest_draft(lane: Lane) -> int:
    """The most tokens that a step of the lane drafted."""
    return max((len(step.drafted) for step in lane.steps), default=0)


def fewest_passes(lane: Lane) -> int:
    """Forward passes for the lane's tokens if each accepted the longest draft and gave a bonus."""
    return math.ceil(len(lane.tokens) / (longest_draft(lane) + 1))
