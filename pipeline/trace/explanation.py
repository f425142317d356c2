"""What happened to a round and to each of its tokens, in words: for the page and for both APIs.

Texts of users and models stand in them as string literals, and are never markup.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pipeline.decoding.events import SPECULATIVE, Origin
from pipeline.trace.record import StepRecord, Token, Trace
from pipeline.words import counted

WAITING = "Not verified yet."
END_KEY = "end of text"

_NO_TEXT = "part of a character, or the end key"
_REPLACES = "replaces the drafted"
_LONGEST = 60  # characters of a token


@dataclass(frozen=True, slots=True)
class TokenExplanation:
    """What happened to one token.

    Attributes:
        state: its origin; of a draft that is not in the text, "rejected" or "untested".
        place: its position in the draft, from 0; a bonus follows the last.
        name: its text as a string literal.
        facts: what it replaces, and the figures of its acceptance test, by name. Greedy decoding
            has no figures: it compares two first choices.
        reason: why it is in the text, or is not.
    """

    id: int
    text: str
    state: str
    place: int
    name: str
    reason: str
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def replaces(self) -> str:
        """The name of the rejected draft that a resampled token replaces; "" of another."""
        return self.facts.get(_REPLACES, "")

    @property
    def sentence(self) -> str:
        """Of a resampled token: what it replaces, the figures of the failed test, and why."""
        figures = (f"{name} = {each}" for name, each in self.facts.items() if name != _REPLACES)
        facts = ": ".join(filter(None, (self.replaces, ", ".join(figures))))
        return f"{self.name} {_REPLACES} {facts}. {self.reason}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """What happened in one round.

    Attributes:
        drafting: how the draft was made; "" without one.
        verification: what the forward pass of the target made of it, and when.
        tokens: accepted drafts, those that are not in the text, and the target's own token.
    """

    step: int
    drafting: str
    verification: str
    tokens: tuple[TokenExplanation, ...]


def explanations(trace: Trace) -> dict[str, list[dict[str, Any]]]:
    """The explanations of all rounds of each lane, as JSON objects."""
    return {
        name: [
            asdict(explain(trace, name, step, tokens))
            for step, tokens in zip(lane.steps, lane.emitted, strict=True)
        ]
        for name, lane in trace.lanes.items()
    }


def explain(
    trace: Trace, lane: str, step: StepRecord, emitted: Sequence[Token] | None = None
) -> Explanation:
    """Explains a round.

    Args:
        trace: has the settings of the run and the texts of drafted tokens.
        lane: the name of its lane.
        emitted: the tokens that the round added to the text; None looks them up.
    """
    if emitted is None:
        emitted = trace.lanes[lane].emitted[step.index]
    drafted = len(step.drafted)
    kept = [token for token in emitted if token.origin.kept]
    verification = f"One forward pass of the target took {duration(step.verify_s)}"
    if drafted:
        verification += f" and accepted {step.accepted} of {drafted}"
    return Explanation(
        step.index,
        drafting(trace, drafted, step.copied, duration(step.draft_s)),
        f"{verification}; the step ended {duration(step.time_s)} after the start",
        (
            *(_emitted(trace, lane, step, at, token) for at, token in enumerate(kept)),
            *(_refused(trace, step, at) for at in range(len(kept), drafted)),
            *(_emitted(trace, lane, step, len(kept), token) for token in emitted[len(kept) :]),
        ),
    )


def drafting(trace: Trace, drafted: int, copied: bool, time: str = "") -> str:
    """How a draft of that many tokens was made; `time` is there once it is measured."""
    if not drafted:
        return ""
    if copied:
        how = "by copying, without a pass"
    elif trace.drafts_blocks:
        how = "in one pass"
    else:
        how = f"{'each ' if drafted > 1 else ''}in a pass of its own"
    when = f" in {time}" if time else ""
    return f"{counted(drafted, 'token')} {'was' if drafted == 1 else 'were'} drafted{when}, {how}"


def probabilities(trace: Trace) -> str:
    """Of which distributions the most likely tokens are."""
    if trace.greedy:
        return "Each model’s own probabilities; greedy decoding takes the target’s first choice."
    return "Probabilities after temperature, top-p and top-k, as they were tested."


def named(trace: Trace, token: int) -> str:
    """The text of a token as a string literal; its id, where an old trace lacks the text."""
    return quoted(trace.pieces[token]) if token in trace.pieces else f"#{token}"


def quoted(text: str) -> str:
    """The text as a string literal: characters that cannot be seen, or that change the direction,
    are escaped; a long text is cut.
    """
    literal = json.dumps(text[:_LONGEST], ensure_ascii=False)
    shown = "".join(f"\\u{{{ord(one):x}}}" if _unseen(one) else one for one in literal)
    return f'{shown[:-1]}…" ({len(text)} characters)' if len(text) > _LONGEST else shown


def _unseen(character: str) -> bool:
    kind = unicodedata.category(character)
    return kind[0] == "C" or kind in ("Zl", "Zp") or (kind == "Zs" and character != " ")


def probability(value: float | None) -> str:
    if value is None:
        return ""
    return "< 0.001" if 0 < value < 0.0005 else f"{value:.3f}"


def duration(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"


def _emitted(
    trace: Trace, lane: str, step: StepRecord, place: int, token: Token
) -> TokenExplanation:
    resampled = token.origin is Origin.RESAMPLED
    facts = _test(trace, step, place) if resampled or token.origin.kept else {}
    if resampled:
        facts = {_REPLACES: named(trace, step.drafted[place]), **facts}
    return TokenExplanation(
        token.id,
        token.text,
        token.origin.value,
        place,
        quoted(token.text) if token.text else _NO_TEXT,
        _why_emitted(trace, lane, step, place, token.origin),
        facts,
    )


def _refused(trace: Trace, step: StepRecord, place: int) -> TokenExplanation:
    """A draft that is not in the text. Token by token, those after the first rejection are not
    tested, and neither is what follows the end of the text.
    """
    token, whole = step.drafted[place], _as_block(trace, step)
    text = trace.pieces.get(token, f"#{token}")
    if place < step.accepted or (place > step.accepted and not whole):
        reason = "It follows a token that ended the step, so it was never tested."
        return TokenExplanation(token, text, "untested", place, named(trace, token), reason)
    if whole:
        reason = "Block verification accepted the draft up to an earlier token only."
    elif trace.greedy:
        reason = "Not the target’s first choice."
    else:
        reason = "It failed the acceptance test; the next token replaces it."
    facts = _test(trace, step, place)
    return TokenExplanation(token, text, "rejected", place, named(trace, token), reason, facts)


def _as_block(trace: Trace, step: StepRecord) -> bool:
    """Whether the drafted tokens were tested together. Those of a copy never are."""
    return trace.verifies_blocks and bool(step.drafted) and not step.copied


def _test(trace: Trace, step: StepRecord, place: int) -> dict[str, str]:
    if trace.greedy:
        return {}
    facts = {
        "draft probability q": probability(step.draft_prob[place]),
        "target probability p": probability(step.target_prob[place]),
    }
    accept = step.accept_prob[place]
    if trace.lossy:
        return {**facts, "p is typical of the target": "yes" if accept else "no"}
    whole = _as_block(trace, step)
    facts["accepted up to here, if not further" if whole else "accepted with min(1, p ∕ q)"] = (
        probability(accept)
    )
    number = step.uniform[place]
    if number is not None:
        outcome = "accepted" if place < step.accepted else "rejected"
        facts["random number"] = f"{probability(number)} → {outcome}"
    return facts


def _why_emitted(trace: Trace, lane: str, step: StepRecord, place: int, origin: Origin) -> str:
    match origin:
        case Origin.TARGET if lane == SPECULATIVE:
            return "No token was drafted in this step."
        case Origin.TARGET:
            return "One forward pass of the target, one token."
        case Origin.REMEMBERED:
            return (
                "It followed the same words in an earlier answer, from where it was copied, and "
                "the target accepted it."
            )
        case Origin.RESAMPLED:
            return _why_resampled(trace, step)
        case Origin.BONUS:
            drafted = len(step.drafted)
            every = f"All {drafted} drafted tokens are"
            subject = "The drafted token is" if drafted == 1 else every
            return f"{subject} accepted, so the same forward pass gives one more."
    if trace.greedy:
        whose = "The target’s first choice" if step.copied else "The first choice of both models"
        return f"{whose}, so it is accepted."
    if _as_block(trace, step):
        if place + 1 < step.accepted:
            return "Block verification accepted the draft up to a later token, and this one too."
        return (
            "Block verification accepted the draft up to here: the last token that passes its test "
            "decides."
        )
    if trace.lossy:
        return (
            "Typical enough of the target, whatever its probability under the draft: accepted, "
            "which is lossy."
        )
    if step.uniform[place] is None:
        return "The target’s probability is at least the draft’s, so it is always accepted."
    return "The random number is below min(1, p ∕ q), so it is accepted."


def _why_resampled(trace: Trace, step: StepRecord) -> str:
    if trace.greedy:
        return "It is the target’s first choice, which the text takes as it does without a draft."
    if trace.lossy:
        return (
            "The figures are of the rejected token; this one is sampled from the target’s "
            "distribution without the rejected token, and the text is not the target’s: acceptance "
            "was lossy."
        )
    kept = (
        ", times the probability that the draft is kept so far," if _as_block(trace, step) else ""
    )
    return (
        "The figures are of the rejected token; this one is sampled from the residual, the "
        f"target’s distribution{kept} minus the draft’s, so the text has the target’s distribution."
    )
