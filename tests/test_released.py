"""The paper's table on a released pair: what is computed of its answers."""

from dataclasses import replace

import pytest

from lab.answers import answered
from lab.studies.released import HYBRID_AUTO, NONE, STUDY, Case, cases, rows_of
from pipeline.request import Request
from tests.fake_dolly import FakeDolly
from tests.served import PLAIN

QUESTIONS, CODE = 2, 1
EVERY = cases(["int8/int8"], ["greedy"], ["4", HYBRID_AUTO], ["paged", "stateful"])


@pytest.fixture(scope="module")
def answers():
    """Complete ones, whose every step takes 10 ms and every prompt 50 ms."""
    dolly = FakeDolly(PLAIN)
    conditions = [case.condition(dolly) for case in EVERY]
    requests = [Request(f"Ask {n}", max_new_tokens=100) for n in range(QUESTIONS + CODE)]
    *_, made = answered(conditions, requests, 1)

    def timed(answer):
        steps = [replace(s, draft_s=0.0, verify_s=0.01, other_s=0.0) for s in answer.lane.steps]
        lane = replace(answer.lane, steps=tuple(steps), prefill_s=0.05)
        return replace(answer, lane=lane)

    return replace(made, answers=tuple(map(timed, made.answers)))


def test_every_combination_has_its_own_baseline():
    caches = ["paged", "stateful"]
    every = cases(["a/a", "b/b"], ["greedy", "sampled"], ["1", "2", HYBRID_AUTO], caches)
    assert len(every) == len({case.name for case in every}) == 2 * 2 * 4 + 3
    assert {case.baseline.name for case in every} == {c.name for c in every if c.drafts == NONE}


def test_a_speedup_is_of_the_seconds_of_a_token_with_its_prompt(answers):
    rows = {(row["kind"], row["drafts"]): row for row in rows_of(EVERY, QUESTIONS, answers)}
    assert len(rows) == len(EVERY)
    for case in EVERY:
        row = rows[case.kind, case.drafts]
        made = answers.of(case.name)
        tokens = sum(len(answer.lane.tokens) for answer in made)
        seconds = sum(0.05 + 0.01 * len(answer.lane.steps) for answer in made)
        assert row["ms"] == pytest.approx(1e3 * seconds / tokens)
        alone = rows[case.kind, NONE]["ms"]
        assert row["x100"] == pytest.approx(alone / row["ms"])
        assert row["questions"] == pytest.approx(row["code"])  # every answer is alike
        assert row["same"] == 1
    assert STUDY.holds([*rows.values()])


def test_a_greedy_text_that_differs_is_said_and_fails(answers):
    first = answers.of(EVERY[1].name)[0]
    steps = first.lane.steps
    changed = replace(
        first, lane=replace(first.lane, steps=steps[:-1], tokens=first.lane.tokens[:-1])
    )
    kept = [answer for answer in answers.answers if answer is not first]
    rows = [*rows_of(EVERY, QUESTIONS, replace(answers, answers=(changed, *kept)))]
    assert not STUDY.holds(rows)


def test_a_case_is_compared_over_what_its_baseline_has_answered(answers):
    case = Case("int8/int8", "greedy", "paged", "4")
    only = [a for a in answers.answers if a.condition != case.baseline.name or a.request == 0]
    part = replace(answers, answers=tuple(only))
    row = next(row for row in rows_of([case], QUESTIONS, part))
    assert row["code"] is None
    assert not [*rows_of([case], QUESTIONS, replace(answers, answers=()))]
