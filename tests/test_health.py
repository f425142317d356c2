"""Readiness: what watches a server learns whether it can answer, without a place in the queue."""

from concurrent.futures import Future
from contextlib import closing

import httpx
import pytest
from gradio_client import Client

from pipeline.errors import UserError
from tests.fake_dolly import PAIR, FakeDolly, loader_of
from tests.served import PLAIN, served, served_page
from tests.waiting import wait_until
from ui.page import Page
from ui.run.turn import Turn


def ready(url):
    reply = httpx.get(f"{url}ready")
    return reply.status_code, reply.json()


def test_it_is_ready_with_the_status_of_the_api(url):
    with closing(Client(url, verbose=False)) as client:
        assert ready(url) == (200, client.predict(api_name="/status"))


@pytest.mark.parametrize("loaded", [True, False])
def test_it_is_not_ready_until_the_models_are_loaded(loaded):
    loading = Future()
    with served(loading) as url:
        assert ready(url) == (503, {"ready": False, "pair": {"name": "fake"}, "note": PAIR.note})
        if loaded:
            loading.set_result(FakeDolly(PLAIN))
            wait_until(lambda: ready(url)[0] == 200)
        else:
            loading.set_exception(UserError("model", "x", "choose another"))
            wait_until(lambda: loading.done())
            assert ready(url)[0] == 503


def test_it_is_ready_while_a_race_runs_and_no_longer_when_it_shuts_down():
    dolly, turn = FakeDolly(PLAIN, pause=0.05), Turn()
    with (
        served_page(Page(loader_of(dolly), turn)) as url,
        closing(Client(url, verbose=False)) as client,
    ):
        job = client.submit("Say it", max_new_tokens=2000, api_name="/trace")
        wait_until(lambda: dolly.started)
        assert ready(url)[0] == 200
        turn.close(2)
        assert ready(url)[0] == 503
        assert job.result()["lanes"]["autoregressive"]["finish"] == "cancelled"
