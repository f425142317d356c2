"""Failure signatures: they fire on races that fail, and on no normal one.

Each race is checked after every step, more often than the page does, and counts if a signature was
there at any time. Signatures of memory and logits need a machine or weights that fail; here they
can only be seen not to fire.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from lab.prompts import EVERY
from lab.result import Chart, Column, Result, Rows
from lab.study import Setup, Study
from pipeline.decoding.events import Step
from pipeline.request import Request
from pipeline.trace.recording import Update
from pipeline.trace.signatures import KINDS as SIGNATURES
from pipeline.trace.signatures import Signature, signatures

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly

_RACES = 50  # of each normal kind
_FAILING = 6
_NORMAL = _GREEDY, _SAMPLED = "normal, greedy", "normal, sampled"


def _races(settings: Mapping[str, Any], count: int) -> dict[str, list[Request]]:
    """The requests of each kind of race; `settings` are those that the page begins with."""
    loop = Request(
        "Write a dialogue between two parrots that repeat each other.",
        max_new_tokens=200,
        **settings,
    )
    return {
        _GREEDY: _requests(settings, count),
        _SAMPLED: _requests({**settings, "temperature": 0.7}, count),
        "high temperature, eight drafts": _requests(
            {"temperature": 1.5, "draft_length": 8}, _FAILING
        ),
        "two parrots, greedy": [loop],
    }


def _requests(settings: Mapping[str, Any], count: int) -> list[Request]:
    """Every prompt in turn, each time with another seed."""
    asked = islice(cycle(EVERY), count)
    return [Request(*prompt, seed=seed, **settings) for seed, prompt in enumerate(asked)]


def _measure(setup: Setup) -> Generator[Result, None, None]:
    dolly = yield from setup.pair()
    kinds = _races(setup.choice.pair.settings, setup.repeats or _RACES)
    result = Result(pair=dolly.about, planned=sum(map(len, kinds.values())))
    for kind, requests in kinds.items():
        before, fired = result.rows, Counter[str]()
        for count, request in enumerate(requests, start=1):
            fired.update((yield from _fired(dolly, request, result)))
            row = {"races": kind, "count": count, **{name: fired[name] for name in SIGNATURES}}
            result = replace(result.measured(), rows=(*before, row))
            yield result


def _fired(dolly: Dolly, request: Request, so_far: Result) -> Generator[Result, None, set[str]]:
    """Races; returns the signatures that were there after any step."""
    run, names = dolly.start(request), set[str]()
    found: tuple[Signature, ...] = ()
    with closing(iter(run)) as updates:
        for update in updates:
            if isinstance(update, Update) and isinstance(update.event, Step):
                found = signatures(run.trace(), dolly.memory_uses(), before=found)
                names |= {each.name for each in found}
            yield so_far
    return names


def _conclude(rows: Rows) -> str:
    normal = [row for row in rows if row["races"] in _NORMAL]
    count = sum(row["count"] for row in normal)
    fired = sum(row[name] for row in normal for name in SIGNATURES)
    failing = [row for row in rows if row["races"] not in _NORMAL]
    seen = "; ".join(
        f"{row['races']}: "
        + (", ".join(f"{name} {row[name]}" for name in SIGNATURES if row[name]) or "none")
        + f" of {row['count']}"
        for row in failing
    )
    return f"{fired:g} signatures on {count:g} normal races. {seen}."


STUDY = Study(
    name="signatures",
    title="Failure signatures",
    question="Does any failure signature appear in a normal race, and does each appear in races "
    "that fail?",
    seconds=300,
    columns=(
        Column("races", "Races"),
        Column("count", "Number", digits=0),
        *(Column(name, kind.title, digits=0) for name, kind in SIGNATURES.items()),
    ),
    chart=Chart(
        kind="bars",
        x="races",
        y=tuple(SIGNATURES),
        axis="races with the signature",
        reading="A race counts if the signature was there after any of its steps.",
    ),
    measure=_measure,
    conclude=_conclude,
)
