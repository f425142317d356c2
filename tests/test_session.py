"""One browser tab: however a run ends, the page shows its end, and nothing goes on unseen."""

import json
from dataclasses import replace

import pytest

from pipeline.decoding.events import FinishReason
from pipeline.progress import Progress
from pipeline.request import Request
from tests.fake_dolly import PAIR, FakeDolly, action, asked, loader_of
from tests.served import PLAIN
from tests.waiting import wait_until
from ui.header import header_fields
from ui.page import Page
from ui.run.action import Action, StagedDisplay
from ui.run.turn import Turn
from ui.run.view_state import Changes
from ui.session import Session
from ui.tabs.tab import Tab

REQUEST = Request("Say something", max_new_tokens=12)
LONG = Request("Say something", max_new_tokens=2000)  # with a pause, it does not end by itself


@pytest.fixture
def session():
    session = Session()
    yield session
    session.close()


def measure(session, dolly):
    return session.act(action("measure-request"), asked(dolly, REQUEST), Turn())


def ends(changes):
    """How each lane ended, by the lines that the panes get."""
    lines = map(json.loads, changes.lines.splitlines())
    return {line["lane"]: line["reason"] for line in lines if line["kind"] == "end"}


def test_a_race_that_is_stopped_after_an_experiment_was_is_shown_to_have_ended(session):
    dolly = FakeDolly(PLAIN, pause=0.01)
    measuring = measure(session, dolly)
    next(measuring)
    stopped = session.stop()
    assert stopped.status.line == "Stopped"
    assert set(stopped.views) == {"experiment-request"}
    assert all(changes in (Changes(), stopped) for changes in measuring)
    racing = session.race(dolly, LONG, Turn())
    next(racing)
    stopped = session.stop()
    assert set(ends(stopped).values()) == {FinishReason.CANCELLED}
    assert stopped.status.line == "Stopped"
    assert session.files()


def test_the_page_has_time_to_draw_a_race_before_anything_is_computed(session, monkeypatch):
    monkeypatch.setattr("ui.session._REST", 60)
    dolly = FakeDolly(PLAIN)
    racing = session.race(dolly, REQUEST, Turn())
    for _ in range(2):
        next(racing)
    assert not any(lane.prefill_s or lane.steps for lane in dolly.last_trace().lanes.values())
    assert session.stop().status.line == "Stopped"


@pytest.mark.parametrize("what", ["race", "experiment"])
def test_what_is_closed_as_it_begins_does_not_go_on_unseen(session, what):
    dolly = FakeDolly(PLAIN, pause=0.01)
    work = session.race(dolly, LONG, Turn()) if what == "race" else measure(session, dolly)
    next(work)
    wait_until(lambda: dolly.started)
    work.close()
    wait_until(lambda: not session.busy)
    lanes = dolly.last_trace().lanes.values()
    assert {lane.finish for lane in lanes} == {FinishReason.CANCELLED}


def test_the_end_of_a_race_is_whole_and_a_late_stop_changes_nothing(session):
    dolly = FakeDolly(PLAIN)
    *_, last = session.race(dolly, REQUEST, Turn())
    assert ends(last) == {"autoregressive": "length", "speculative": "length"}
    first, *_ = last.lines.splitlines()
    assert json.loads(first)["model"] == f"{PAIR.name}, of unknown size: its facts can be wrong"
    assert last.verdict["state"] != "win"
    assert last.status.state == "ended"  # green only for a win
    files = session.files()
    assert files.trace.read_text(encoding="utf-8") == dolly.last_trace().to_json()
    assert [path.suffix for path in files.paths] == [".json", ".csv"]
    assert session.stop() == last
    assert session.files() is files
    kept = json.loads(first)["run"]  # by the browser, for a reload
    assert Session().files(kept) is files
    assert Session().files() is Session().files("another") is None
    session.close()
    del files
    assert Session().files(kept) is None


@pytest.mark.parametrize("exact", [True, False])
def test_the_header_says_where_passes_of_different_sizes_differ(session, exact):
    dolly = FakeDolly(PLAIN)
    dolly.exact_widths = exact
    *_, last = session.race(dolly, REQUEST, Turn())
    header = header_fields(loader_of(dolly), last.status)
    words = "rounding depends on the number of tokens in a forward pass"
    assert (words not in header) == exact == dolly.last_trace().pair["exact_widths"]


def remembers(session, dolly, **settings):
    """How many tokens of the next race are copied from earlier answers."""
    list(session.race(dolly, Request("any", max_new_tokens=60, **settings), Turn()))
    return dolly.last_trace().speculative.remembered


def test_a_visitors_answers_are_remembered_for_the_drafter_that_copies_them(session):
    """One that was stopped, as far as it went."""
    dolly = FakeDolly(PLAIN)
    dolly.pause = 0.01
    racing = session.race(dolly, Request("any", max_new_tokens=2000), Turn())
    next(racing)
    wait_until(lambda: len(dolly.last_trace().speculative.tokens) > 40)
    dolly.pause = 0
    racing.close()
    assert remembers(session, dolly, drafter="hybrid") == 0
    assert remembers(session, dolly, drafter="memory") > 20
    assert remembers(Session(), dolly, drafter="memory") == 0  # another visitor's


def test_what_another_pair_answered_is_not_remembered(session):
    dolly, other = FakeDolly(PLAIN), FakeDolly(PLAIN)
    other.pair = replace(PAIR, name="other")
    remembers(session, dolly)
    assert remembers(session, other, drafter="memory") == 0
    assert remembers(session, other, drafter="memory") > 20


def test_the_same_race_again_is_compared_with_those_before(session):
    dolly = FakeDolly(PLAIN)

    def label(request, mode="race"):
        *_, end = session.race(dolly, request, Turn(), mode)
        return end.verdict["headline_label"]

    assert "runs of this race" not in label(REQUEST)
    assert "2 runs of this race" in label(REQUEST)
    assert "3 runs of this race" in label(REQUEST)
    assert "runs of this race" not in label(REQUEST, "sequential")
    assert "runs of this race" not in label(replace(REQUEST, seed=1))
    assert "runs of this race" not in label(REQUEST)


def test_it_is_busy_and_has_no_files_while_an_activity_of_its_own_runs(session):
    dolly = FakeDolly(PLAIN)
    dolly.goes_on.clear()
    updates = session.race(dolly, REQUEST, Turn())
    assert [session.busy, bool(next(updates)), session.busy] == [False, True, True]
    assert session.files() is None
    dolly.goes_on.set()
    list(updates)
    assert not session.busy


def test_an_experiment_that_stands_still_sends_nothing():
    what = asked(FakeDolly(PLAIN), REQUEST)
    display = StagedDisplay(what, "Measuring", "Measured", lambda *_: {"view": "drawn"})
    sent = [display.progress(reports, "timings").views for reports in ([1], [], [1])]
    assert [bool(views) for views in sent] == [True, False, False]


@pytest.mark.parametrize("stopped", [True, False])
def test_a_race_that_waits_is_shown_to_end_or_to_begin(session, stopped):
    turn, dolly = Turn(), FakeDolly(PLAIN, pause=0.05)
    other = turn.run(iter(FakeDolly(PLAIN).start(REQUEST)))
    next(other)
    racing = session.race(dolly, REQUEST, turn)
    assert next(racing).status.line == "Waiting for another run to end"
    if stopped:
        assert set(ends(session.stop()).values()) == {FinishReason.CANCELLED}
        assert not dolly.last_trace().speculative.tokens
    other.close()
    if not stopped:
        assert next(each.status.line for each in racing if each.status) == "Racing · 0 %"


def test_an_action_is_all_that_a_tab_declares(monkeypatch):
    def count(asked):
        work = (each for each in (Progress("Preparing"), 3))
        return work, StagedDisplay(
            asked, "Counting", "Counted", lambda number, _: {"mine": f"{number}"}
        )

    mine = Action(name="count", label="Count", start=count)
    monkeypatch.setattr("ui.page.TABS", (Tab(name="mine", title="Mine", actions=(mine,)),))
    page = Page(loader_of(FakeDolly(PLAIN)))
    assert [button.value for button in page._buttons.values()] == ["Count"]
    *_, (views, _) = page.answer(mine, Session(), "race", *REQUEST.form.values())
    shown = {name: view["value"] for name, view in json.loads(views).items()}
    assert shown["mine"] == "3"
    assert "Counted" in shown["header"]
