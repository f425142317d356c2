"""Failure signatures: each fires where it should, none elsewhere, and none flickers."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from playwright.sync_api import expect

from pipeline.decoding.events import FinishReason, Origin, Step
from pipeline.environment import MemoryUse
from pipeline.errors import LogitsError, UserError
from pipeline.request import Request
from pipeline.trace.record import Lane, StepRecord, Token
from pipeline.trace.repetition import collapsed
from pipeline.trace.signatures import KINDS, signatures
from tests.fake_dolly import FakeDolly
from tests.fakes import FakeLM
from tests.served import opened, run, wait_for_end
from tests.traces import VARIED, alone, changed, ran, timed
from ui.run.recorded import recorded

DRAFT_S, STEP_S = 0.002, 0.010


def names(trace, *memory, failure=None):
    return [each.name for each in signatures(trace, memory, failure)]


def race(accepted):
    """A race whose rounds drafted four tokens at known costs, and accepted so many of them."""
    trace = timed(
        {
            "autoregressive": lambda step: {"verify_s": STEP_S, "other_s": 0.0},
        },
        texts=VARIED,
    )
    steps, tokens, time_s = [], [], 0.0
    for index, count in enumerate(accepted):
        drafted = () if count is None else (1, 2, 3, 4)
        draft_s = DRAFT_S * len(drafted)
        time_s += draft_s + STEP_S
        blank = (0.5,) * len(drafted)
        steps.append(
            StepRecord(
                index=index,
                draft_s=draft_s,
                verify_s=STEP_S,
                other_s=0.0,
                drafted=drafted,
                accepted=count or 0,
                draft_prob=blank,
                target_prob=blank,
                accept_prob=blank,
                uniform=blank,
                time_s=time_s,
            )
        )
        emitted = [Origin.ACCEPTED] * (count or 0) + [Origin.RESAMPLED]
        tokens += [Token(len(tokens) + i, "w", o, index, time_s) for i, o in enumerate(emitted)]
    lane = Lane(0.0, FinishReason.LENGTH, "w" * len(tokens), tuple(tokens), tuple(steps))
    return replace(trace, lanes={**trace.lanes, "speculative": lane})


def written(*tokens, text="", ended=True):
    """A greedy race whose speculative answer is these tokens so far."""
    trace = alone(ran(), "speculative")
    made = tuple(Token(t, f"<{t}>", Origin.TARGET, i, 0.1) for i, t in enumerate(tokens))
    finish = FinishReason.LENGTH if ended else None
    lane = replace(trace.speculative, tokens=made, text=text, steps=(), finish=finish)
    return replace(trace, lanes={"speculative": lane})


# --- acceptance -----------------------------------------------------------------------------------

# Drafting four tokens costs 1.8 steps: at an acceptance of 0.46 it pays.
BAD, GOOD, MIDDLING = [0] * 24, [4] * 12, [1] * 24


def test_drafts_that_are_not_accepted_are_named_with_their_break_even():
    (found,) = signatures(race(BAD))
    assert found.name == "acceptance"
    assert found.finding == "0 of the last 16 tests accepted; K = 4 pays from 46 %"
    assert found.remedy == KINDS["acceptance"].remedy


@pytest.mark.parametrize(
    ("accepted", "named"),
    [
        (GOOD, False),
        (BAD + GOOD, False),  # only the last 16 tests count
        (GOOD + BAD, True),
        ([0] * 12, False),  # too few
        ([*MIDDLING, 0, 0, 0, 0], False),  # 6 of 16, which chance may explain
        *(([*BAD, *[1] * after], after < 8) for after in range(9)),  # over at 8 of 16, not before
        ([*BAD, *[None] * 7], True),
        ([*BAD, *[None] * 8], False),  # drafting has stopped, and costs nothing
    ],
)
def test_it_is_named_where_the_latest_tests_prove_it_until_they_are_at_break_even(accepted, named):
    trace = race(accepted)
    assert names(trace) == ["acceptance"] * named
    assert names(alone(trace, "speculative")) == []


@pytest.mark.parametrize(
    ("accepted", "named"),
    [
        ([*BAD, None], True),  # the last token is never drafted
        ([*BAD, None, None], False),
        ([*BAD[:15], None, None, *BAD[15:]], False),
    ],
)
def test_auto_is_not_named_while_it_is_stopping(accepted, named):
    trace = race(accepted)
    trace = replace(trace, request={**trace.request, "draft_length": "auto"})
    assert names(trace) == ["acceptance"] * named


def test_few_races_at_break_even_are_named_however_often_they_are_looked_at():
    """1 % of the times that the share falls under it, at most; and none where drafting pays."""
    assert ever_named(0.46, races=60) <= 2
    assert ever_named(0.6, races=60) == 0
    assert ever_named(0.15, races=20) == 20


def ever_named(acceptance, races):
    """How many of the races, of 100 tests about, are named after any round."""
    passes = np.random.default_rng(0).random((races, 50, 4)) < acceptance
    counts = np.cumprod(passes, axis=2).sum(axis=2)
    return sum(
        any(names(cut(whole, rounds)) for rounds in range(16, 51, 2))
        for whole in map(race, counts.tolist())
    )


def cut(trace, rounds):
    """The race after so many rounds."""
    lane = trace.speculative
    tokens = tuple(token for token in lane.tokens if token.step < rounds)
    return changed(trace, steps=lane.steps[:rounds], tokens=tokens)


def test_costs_that_turn_out_lower_end_it_only_where_the_share_is_at_break_even():
    """6 of the last 16 tests are under break-even, and not with 95 % confidence."""
    below = race([1] * 20 + [0, 0, 0, 0])  # 6 of 16, and never named
    named = signatures(race(BAD))
    assert names(below) == []
    assert [each.name for each in signatures(below, before=named)] == ["acceptance"]
    assert signatures(race(GOOD), before=named) == ()


def test_times_that_vary_prove_less():
    """Two of five drafts take a third of the time: drafting may cost less than its median says."""
    steady = race([1, 0, 0, 0] * 12)
    steps = tuple(
        replace(step, draft_s=step.draft_s / (3 if step.index % 5 < 2 else 1))
        for step in steady.speculative.steps
    )
    assert names(steady) == ["acceptance"]
    assert names(changed(steady, steps=steps)) == []


def test_drafts_that_pay_at_no_acceptance_are_said_so():
    trace = race(GOOD)
    steps = tuple(replace(step, draft_s=0.1, time_s=0.0) for step in trace.speculative.steps)
    (found,) = signatures(changed(trace, steps=steps))
    assert found.finding == "16 of the last 16 tests accepted; K = 4 never pays"


# --- text -----------------------------------------------------------------------------------------


def test_an_answer_that_repeats_itself_is_named_with_its_lane():
    (found,) = signatures(written(9, *[1, 2, 3] * 3))
    assert (found.name, found.finding) == ("text", "the speculative answer repeats the same words")
    assert names(written(*range(30))) == []


@pytest.mark.parametrize(
    ("tokens", "named"),
    [
        ([7, 5, 5, 7, 6, 6, 5, 7] * 3, True),
        ([8, 8, 8, 7, 5, 5, 7, 6, 6, 5, 7, 5, 6, 6, 7, 5, 5, 6, 7, 7, 6, 5, 5, 7, 5, 6, 7], True),
        ([5, 6, 7, 8] * 6, False),  # as a collapse; it repeats itself
        ([5] * 23, False),
    ],
)
def test_an_answer_of_a_few_kinds_of_tokens_has_collapsed(tokens, named):
    assert collapsed(tokens) is named


def test_a_repetition_that_finds_an_end_stays_named_for_some_tokens():
    """And at the end of the answer counts what is there."""
    loop = [9, *[1, 2, 3] * 3]
    during = [names(written(*loop, *range(20, 20 + more), ended=False)) for more in range(12)]
    assert during == [*[["text"]] * 9, [], [], []]
    assert names(written(*loop, 20)) == []


# --- memory ---------------------------------------------------------------------------------------


def use(share, what="the process"):
    return MemoryUse(what, int(share * 10**9), 10**9, "Ask for less")


def test_memory_near_its_limit_is_named_with_its_own_remedy():
    trace = race(GOOD)
    (found,) = signatures(trace, [use(0.5, "the pool"), use(0.92)])
    assert found.finding == "the process has used 92 % of 1.0 GB"
    assert found.remedy == "Ask for less"
    assert names(trace, use(0.89)) == []


# --- logits ---------------------------------------------------------------------------------------


def test_a_run_that_ended_by_its_logits_names_them_first():
    failure = LogitsError("target logits", float("nan"), "choose f32 weights")
    found = signatures(race(BAD), [use(0.95)], failure)
    assert [each.name for each in found] == ["logits", "memory", "acceptance"]
    assert [*KINDS] == ["logits", "memory", "text", "acceptance"]
    assert found[0].finding == "target logits nan"
    assert names(race(GOOD), failure=UserError("prompt", 1, "shorten it")) == []


# --- normal races ---------------------------------------------------------------------------------


def test_the_recorded_race_shows_none():
    assert names(recorded()) == []


class Varied(FakeDolly):
    """Other tables for every seed."""

    def __init__(self, texts, seed, likeness=0.8):
        self._seed, self._likeness = seed, likeness
        super().__init__(texts)

    def _target(self):
        target = FakeLM(len(self.texts), 2 * self._seed)
        target.hidden = lambda token: [float(token)]
        return target

    def _draft(self):
        like = self._target()
        return FakeLM(len(self.texts), 2 * self._seed + 1, like=like, likeness=self._likeness)


def during(dolly, **settings):
    """The signatures after each step of a race on a quiet machine."""
    run = dolly.start(Request("Say it", **settings))
    return [tuple(names(quiet(run.trace()))) for update in run if isinstance(update.event, Step)]


def quiet(trace):
    """The trace with the costs of the embedded pair, about."""
    lanes = {
        name: replace(
            lane,
            steps=tuple(
                replace(step, draft_s=0.0008 * len(step.drafted), verify_s=STEP_S, other_s=0.0)
                for step in lane.steps
            ),
        )
        for name, lane in trace.lanes.items()
    }
    return replace(trace, lanes=lanes)


def test_none_fires_on_100_normal_races_of_tables():
    """Each at every step; half of them sampled."""
    words = [f" word{i}" for i in range(80)]
    fired = [
        during(Varied(words, seed), max_new_tokens=40, temperature=0.7 * (seed % 2), seed=seed)
        for seed in range(100)
    ]
    assert {name for race in fired for found in race for name in found} == set()


def test_a_useless_draft_is_named_once_and_without_flicker():
    """After 16 tests, and until the end."""
    words = [f" word{i}" for i in range(40)]
    settings = {"temperature": 0.5, "draft_length": 8, "max_new_tokens": 100}
    shown = during(Varied(words, 3, likeness=0.0), **settings)
    changes = [found for found, before in pairwise(reversed(shown)) if found != before]
    assert shown[-1] == ("acceptance",)
    assert len(changes) == 1, shown


# --- in the browser -------------------------------------------------------------------------------

ALARM = "[data-testid=verdict][data-racing=yes][data-alarm={}]"
TOP = "(element) => element.getBoundingClientRect().top + scrollY"


@pytest.mark.parametrize("width", [360, 1366])
def test_signatures_are_named_while_the_race_runs_and_move_nothing(browser, url, dolly, width):
    """First one, and then two at once, while the race goes on."""
    dolly.texts, dolly.pause = VARIED, 0.03
    with opened(browser, url, width) as page:
        run(page)
        page.get_by_test_id("verdict").get_by_text("so far").filter(visible=True).first.wait_for()
        line = page.get_by_test_id("signature")
        places = []
        for name, title in (("", ""), ("memory", "Memory near its limit.")):
            if name:
                dolly.memory = (use(0.95),)
                dolly.draft_s = 0.1
                page.locator(ALARM.format(name)).wait_for()
                assert title in line.inner_text()
            places.append(page.locator(".panes").evaluate(TOP))
        assert places[0] == places[1]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        wait_for_end(page)
        line.get_by_text("Ask for less.").wait_for()


def test_logits_that_are_no_numbers_are_one_line_and_named_and_the_next_run_works(page, dolly):
    dolly.damaged = True
    run(page)
    notice = page.get_by_test_id("notice")
    notice.filter(has_text="target logits: nan — its weights are damaged").wait_for()
    line = page.get_by_test_id("signature")
    line.get_by_text("Logits that are no numbers.").wait_for()
    dolly.damaged = False
    run(page)
    wait_for_end(page)
    expect(notice).to_have_text("")
    expect(line.locator("b")).not_to_contain_text("Logits", use_inner_text=True)


def test_how_it_works_says_when_each_is_named_and_how_to_see_it(page):
    page.get_by_role("tab", name="How it works").click()
    table = page.get_by_role("region", name="Failure signatures")
    for kind in KINDS.values():
        assert [*kind] in table.evaluate(
            "e => [...e.querySelectorAll('tbody tr')].map(r => [...r.cells].map(c => c.innerText))"
        )
