"""Other ways to ask: a visitor never types what a record says.

Knows instructions and chance; no tokens, no models. A model taught only the records' own wording
writes garble for any other. Taught these too, it still knows a question it half recognises, and
finishes the answer that it has begun.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from training.corpus import Record

_OWN, _HASTY, _BORROWED, _CLIPPED, _FOREIGN = "own", "hasty", "borrowed", "clipped", "foreign"
_NEAR = (_OWN, _HASTY, _BORROWED, _CLIPPED)  # equally often
_GIVEN = (2, 6)  # tokens of the answer that a foreign question comes with


@dataclass(frozen=True, slots=True)
class Wording:
    """A record as asked this time.

    Attributes:
        given: first tokens of the response that the question cannot tell: they carry no loss.
    """

    record: Record
    given: int = 0


def reword(record: Record, others: Sequence[Record], draw: Random, foreign: float) -> Wording:
    """One of five ways to ask for the response of `record`, drawn.

    Its own words; in haste; begun like another question; with words left out; or, with probability
    `foreign`, a question that has nothing to do with it, where the answer's first tokens are given
    and only going on is learned.
    """
    way = _FOREIGN if draw.random() < foreign else draw.choice(_NEAR)
    if way == _FOREIGN:
        other = draw.choice(others)
        return Wording(replace(other, response=record.response), draw.randint(*_GIVEN))
    asked = record.instruction
    if way == _BORROWED:
        asked = _begun_like(asked, draw.choice(others).instruction, draw)
    elif way == _CLIPPED:
        asked = _clipped(asked, draw)
    if way == _HASTY or (way != _OWN and draw.random() < 0.5):
        asked = _in_haste(asked)
    return Wording(replace(record, instruction=asked))


def _in_haste(asked: str) -> str:
    """Without a capital letter, and without a mark at the end."""
    return (asked[:1].lower() + asked[1:]).rstrip(".?!:")


def _begun_like(asked: str, other: str, draw: Random) -> str:
    """The first one to three words are another question's."""
    count = draw.randint(1, 3)
    return " ".join(other.split()[:count] + asked.split()[count:]) or asked


def _clipped(asked: str, draw: Random) -> str:
    """Up to half of the words are left out."""
    words, share = asked.split(), draw.uniform(0.1, 0.5)
    return " ".join(word for word in words if draw.random() > share) or asked
