"""One tab's runs: whoever ends them, and whenever, the tab is told, and nothing goes on unseen."""

import json
import time
from dataclasses import replace

import pytest

from pipeline.decoding.events import FinishReason
from pipeline.request import Request
from tests.fake_dolly import PAIR, FakeDolly, loader_of
from tests.served import PLAIN
from ui.header import Status, header_fields
from ui.run.turn import Turn
from ui.session import Session

REQUEST = Request("Say something", max_new_tokens=12)


@pytest.fixture
def session():
    session = Session()
    yield session
    session.close()


def ends(view):
    """How each lane ended, by what the panes are told."""
    lines = map(json.loads, view.lanes.splitlines())
    return {line["lane"]: line["reason"] for line in lines if line["kind"] == "end"}


def test_a_race_that_is_stopped_after_a_measurement_was_is_told_to_have_ended(session):
    dolly = FakeDolly(PLAIN, pause=0.01)
    measuring = session.sweep(dolly, REQUEST, Turn())
    next(measuring)
    session.stopped()
    assert list(measuring) == []  # Gradio closes it after one beat more
    racing = session.race(dolly, REQUEST, Turn())
    next(racing)
    stopped = session.stopped()
    assert set(ends(stopped).values()) == {FinishReason.CANCELLED}
    assert stopped.status.line == "Stopped"
    assert session.files


def test_a_race_that_is_closed_as_it_begins_does_not_go_on_unseen(session):
    dolly = FakeDolly(PLAIN, pause=0.01)
    racing = session.race(dolly, REQUEST, Turn())
    next(racing)
    racing.close()
    deadline = time.monotonic() + 2
    while None in [lane.finish for lane in dolly.last_trace().lanes.values()]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    finishes = [lane.finish for lane in dolly.last_trace().lanes.values()]
    assert finishes == [FinishReason.CANCELLED] * 2


def test_stop_at_the_very_end_of_a_race_tells_all_that_its_last_beat_would_have(session):
    *_, last = session.race(FakeDolly(PLAIN), REQUEST, Turn())
    files = session.files
    assert session.stopped() == last
    assert ends(last) == {"autoregressive": "length", "speculative": "length"}
    assert session.files is files


def test_what_a_run_is_told_to_be_of_is_its_own_pair_also_if_another_is_served_by_then(session):
    dolly = FakeDolly(PLAIN)
    views = list(session.race(dolly, REQUEST, Turn()))
    later = loader_of(dolly, replace(PAIR, title="Another pair"))
    list(later.wait())
    told = [header_fields(later, view.status) for view in views if view.status]
    assert len(told) >= 2
    assert all(PAIR.title in line and "Another" not in line for line in told)
    assert "Another pair" in header_fields(later, Status("ready", "Ready"))


def test_it_works_while_something_of_its_own_does(session):
    beats = session.race(FakeDolly(PLAIN), REQUEST, Turn())
    assert [session.works, bool(next(beats)), session.works] == [False, True, True]
    list(beats)
    assert not session.works


def test_a_measurement_that_stands_still_sends_nothing(session):
    beats = session.sweep(FakeDolly(PLAIN, pause=0.1), REQUEST, Turn())
    told = [next(beats).details for _ in range(4)]  # in the first answer, which takes longer
    beats.close()
    assert [bool(details) for details in told] == [True, False, False, False]
