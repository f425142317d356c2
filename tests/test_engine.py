"""What the page asks of an engine, and what it does where the models are elsewhere."""

import json
from contextlib import closing

import pytest
from gradio_client import Client

from pipeline.request import Request
from tests.fake_dolly import Elsewhere, FakeDolly, action, loader_of
from tests.served import PLAIN, served_page
from tests.waiting import wait_until
from ui.page import Page
from ui.run.turn import Turn
from ui.session import Session

FORM = ["race", *Request("Say something", max_new_tokens=5).form.values()]


@pytest.mark.parametrize("what", ["measure-request", "draw-digits", "measure-costs"])
def test_what_needs_the_models_is_refused_in_one_line_where_they_are_elsewhere(what):
    dolly, session = FakeDolly(PLAIN), Session()
    page = Page(loader_of(Elsewhere(dolly)))
    *_, (views, _) = page.answer(action(what), session, *FORM)
    line = json.loads(views)["notice"]["value"]
    assert "not on this server, whose models are in replicas" in line
    assert not dolly.started
    assert not session.busy


def test_two_visitors_race_at_once_where_there_are_two_replicas_and_the_third_waits():
    dolly = FakeDolly(PLAIN)
    loader = loader_of(dolly)
    loader.engine()  # it is loaded before its runs are held
    dolly.goes_on.clear()
    page = Page(loader, Turn(at_once=2))
    with served_page(page) as url, closing(Client(url, verbose=False)) as client:
        jobs = [client.submit("Say", max_new_tokens=4, api_name="/trace") for _ in range(3)]
        wait_until(lambda: len(dolly.started) == 2 and len(page.blocks._queue) == 1)
        dolly.goes_on.set()
        assert all(job.result()["lanes"]["speculative"]["tokens"] for job in jobs)
    assert len(dolly.started) == 3
