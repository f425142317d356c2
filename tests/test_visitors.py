"""Several visitors at once, visitors who leave, and a server that does."""

from concurrent.futures import Future
from contextlib import closing

import httpx
from playwright.sync_api import expect

from pipeline.decoding.events import FinishReason
from pipeline.request import Request
from tests.fake_dolly import FakeDolly, loader_of
from tests.served import (
    PLAIN,
    begun,
    count,
    opened,
    run,
    served,
    served_page,
    status_says,
    wait_for_end,
)
from tests.waiting import PATIENCE, wait_until
from ui.page import Page
from ui.run.turn import Turn
from ui.session import Session

PAUSE = 0.1  # before each event, so that no run ends before it is stopped
LONG = "?max_new_tokens=512"
CANCELLED = "[data-testid=pane-autoregressive][data-end=cancelled]"


def wait_for_cancel(run):
    """Else it goes on to its last token."""
    wait_until(lambda: run.trace().autoregressive.finish)
    assert run.trace().autoregressive.finish is FinishReason.CANCELLED


def test_one_race_at_a_time_and_who_waits_sees_the_queue(browser, url, dolly):
    """And may leave it."""
    dolly.pause = PAUSE
    with opened(browser, url + LONG) as first, opened(browser, url) as second:
        run(first, "The first asks")
        begun(first)
        started = len(dolly.started)
        place, waiting = second.get_by_test_id("place"), "number 1 of 1 in the queue"
        run(second, "Somebody leaves", begins=False)
        place.get_by_text(waiting).wait_for()
        second.get_by_test_id("stop").click()
        place.wait_for(state="hidden")
        run(second, "The second asks", begins=False)
        place.get_by_text(waiting).wait_for()
        assert len(dolly.started) == started
        expect(second.locator(".panes[data-source=live]")).to_have_count(0)
        expect(place).to_be_visible()
        expect(second.get_by_test_id("status")).to_be_hidden()  # it says that all is ready
        assert "The first asks" not in second.content()
        dolly.pause = 0.0
        wait_for_end(first)
        wait_for_end(second)
        requests = [run.trace().request["instruction"] for run in dolly.started]
        assert requests == ["The first asks", "The second asks"]
        expect(place).to_be_hidden()
        assert "The second asks" not in first.content()


def test_a_closed_tab_stops_its_run(browser, url, dolly):
    """And so does a reload, after which the next run works."""
    dolly.pause = PAUSE
    with closing(browser.new_page()) as page:  # Gradio complains of its lost stream
        page.goto(url + LONG)
        status_says(page, "Ready")
        run(page)
        begun(page)
        page.reload()
        wait_for_cancel(dolly.started[-1])
        expect(page.get_by_test_id("badge")).to_contain_text("Recorded")
        run(page)
        begun(page)
    wait_for_cancel(dolly.started[-1])


def test_a_broken_pair_is_one_line_and_the_controls_stay(browser):
    loading, line = Future(), "pair: “fake” — could not be loaded (RuntimeError bro ke)"
    loading.set_exception(RuntimeError("bro\nke"))
    with served(loading) as url, opened(browser, url, status=line) as page:
        run(page, begins=False)
        notice = page.get_by_test_id("notice")
        notice.filter(has_text=line).wait_for()
        assert "\n" not in notice.inner_text()
        assert "Traceback" not in page.content()
        expect(page.get_by_test_id("run")).to_be_enabled()


def test_a_server_that_is_stopped_says_so_and_keeps_what_was_made(browser):
    dolly, turn = FakeDolly(PLAIN, pause=PAUSE), Turn()
    with served_page(Page(loader_of(dolly), turn)) as url, opened(browser, url + LONG) as page:
        run(page)
        begun(page)
        turn.close(2)
        page.locator(CANCELLED).wait_for()
        page.get_by_test_id("notice").filter(has_text="server: shutting down").wait_for()
        assert count(page, "autoregressive") > 3


def asked(url, endpoint, *values):
    asked = {"data": [*values]}
    return httpx.post(f"{url}gradio_api/call/{endpoint}", json=asked, timeout=PATIENCE)


def loaded(dolly):
    """A loader that has loaded `dolly`."""
    loader = loader_of(dolly)
    loader.engine()
    return loader


def test_where_the_queue_is_full_more_are_refused_and_the_page_opens(browser):
    dolly = FakeDolly(PLAIN)
    form = [*Request("any", max_new_tokens=5).form.values(), "race"]
    with served_page(Page(loaded(dolly), queue_size=1)) as url:
        dolly.goes_on.clear()
        assert asked(url, "trace", *form).is_success
        wait_until(lambda: dolly.started)
        assert asked(url, "trace", *form).is_success
        assert asked(url, "trace", *form).status_code == 503
        assert len(dolly.started) == 1
        with opened(browser, url) as page:  # whose errors would fail the test
            status_says(page, "Ready")
        status = httpx.post(f"{url}gradio_api/run/status", json={"data": []}).json()
        assert status["data"][0]["ready"] is True
        dolly.goes_on.set()


def test_more_race_at_once_than_gradio_has_threads_by_itself():
    dolly, races = FakeDolly(PLAIN), 45
    form = [*Request("any", max_new_tokens=1).form.values(), "race"]
    with served_page(Page(loaded(dolly), Turn(races), queue_size=races)) as url:
        dolly.goes_on.clear()
        for _ in range(races):
            assert asked(url, "trace", *form).is_success
        wait_until(lambda: len(dolly.started) == races)
        dolly.goes_on.set()


def test_what_a_visitor_ran_is_forgotten_when_the_tab_is_closed(browser, monkeypatch):
    monkeypatch.setenv("GRADIO_IS_E2E_TEST", "1")  # after a second instead of an hour
    forgotten = []
    monkeypatch.setattr(Session, "close", forgotten.append)
    with served(FakeDolly(PLAIN)) as url:
        with opened(browser, url):
            assert forgotten == []
        wait_until(lambda: forgotten)
        assert len(forgotten) == 1
