"""How far each drafter's drafts are accepted, by place."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from lab.answers import Answers, Condition, answered, tabulated, tests_at
from lab.prompts import FIRST
from lab.result import Chart, Column, Result, Row, Rows
from lab.study import Setup, Study
from pipeline.decoding.drafters import DRAFTERS
from pipeline.request import MAX_DRAFT_LENGTH, Request
from pipeline.words import percent


def _measure(setup: Setup) -> Generator[Result, None, None]:
    dolly = yield from setup.pair()
    # What copies earlier answers would copy those of the other drafters.
    names = [name for name in dolly.pair.drafters if not DRAFTERS[name].copies_answers]
    length = {"draft_length": MAX_DRAFT_LENGTH}
    conditions = [Condition(n, dolly, changes={"drafter": n, **length}) for n in names]
    budget = setup.request.max_new_tokens
    requests = [setup.request, *(Request(*each, max_new_tokens=budget) for each in FIRST)]
    answers = answered(conditions, requests, setup.repeats or 1)
    yield from tabulated(answers, rows_of, dolly.about)


def rows_of(answers: Answers) -> Iterator[Row]:
    for drafter in answers.conditions:
        for place in range(1, MAX_DRAFT_LENGTH + 1):
            tested, accepted = tests_at(answers.lanes(drafter), place)
            if tested:
                rate = accepted / tested
                yield {"drafter": drafter, "place": place, "accepted": rate, "tested": tested}


def _conclude(rows: Rows) -> str:
    first = [row for row in rows if row["place"] == 1]
    if not first:
        return "No draft was tested: nothing in these texts could be copied."
    best = max(first, key=lambda row: row["accepted"])
    said = ", ".join(f"{row['drafter']} {percent(row['accepted'])}" for row in first)
    return (
        f"At the first place of a draft {best['drafter']} is accepted most often; accepted there: "
        f"{said}. A later place is tested only where all before it were accepted."
    )


STUDY = Study(
    name="drafters",
    title="Acceptance by place, for each drafter",
    question="How often are the drafts of each drafter accepted, from the first place to the last?",
    seconds=60,
    columns=(
        Column("drafter", "Drafter"),
        Column("place", "Place in the draft", digits=0),
        Column("accepted", "Accepted of tested", "%", 0),
        Column("tested", "Tested", digits=0),
    ),
    chart=Chart(
        kind="lines",
        x="place",
        y=("accepted",),
        series="drafter",
        reading="Of the request in the form and another of each of six kinds, with "
        f"K = {MAX_DRAFT_LENGTH}.",
    ),
    measure=_measure,
    conclude=_conclude,
)
