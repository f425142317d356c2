"""Nothing is compiled, measured or computed but by who holds the turn, whatever else goes on."""

import json
import threading
import traceback
from contextlib import closing
from dataclasses import replace
from functools import cache

import httpx
import openvino as ov
import pytest
from gradio_client import Client

from pipeline.dolly import Dolly
from pipeline.models.choice import Choice
from pipeline.models.pairs import find_pair
from pipeline.request import Request
from tests.fake_dolly import Everything, action
from tests.served import served_page
from tests.tiny import tiny_folder
from tests.waiting import PATIENCE, wait_until
from ui.page import Page
from ui.run.loader import Loader
from ui.run.turn import Turn
from ui.session import Session
from ui.tabs.beyond_text import _digits

REQUEST = Request("Why?", max_new_tokens=4, drafter="hybrid", draft_length="auto")


@cache
def compiled():
    """The tiny pair. No test uses caches that another has compiled, but for the default ones."""
    return Dolly(tiny_folder())


class Server:
    """A page of the tiny pair.

    Attributes:
        inside: forward passes and compilations while the turn was taken.
        outside: where others were.
    """

    def __init__(self, monkeypatch):
        pair = find_pair(tiny_folder())
        self.choice = Choice(pair, Everything())
        self.loader = Loader(self.choice, lambda _: compiled())
        self.dolly, self.turn = self.loader.engine(), Turn()
        self.inside, self.outside = 0, []
        self.page = Page(self.loader, self.turn)
        for kind, name in ((ov.InferRequest, "start_async"), (ov.Core, "compile_model")):
            monkeypatch.setattr(kind, name, self._noted(getattr(kind, name)))

    def _noted(self, compute):
        def noted(*args, **kwargs):
            if self.turn.taken:
                self.inside += 1
            else:
                self.outside.append("".join(traceback.format_stack()))
            return compute(*args, **kwargs)

        return noted

    def race(self):
        """With other caches than those that are compiled, and costs that are not measured."""
        (*_, last) = Session().race(self.dolly, replace(REQUEST, kv_cache="stateful"), self.turn)
        assert "text" in last.status.line

    def chat(self):
        self.dolly.models().measured = None
        messages = [{"role": "user", "content": "Why?"}]
        body = {"model": self.dolly.pair.name, "messages": messages, "max_tokens": 4}
        with served_page(self.page) as url:
            reply = httpx.post(f"{url}v1/chat/completions", json=body, timeout=PATIENCE)
        assert reply.json()["choices"][0]["finish_reason"] == "length"

    def api(self):
        asked = [*replace(REQUEST, kv_cache="stateful-masked").form.values()]
        with served_page(self.page) as url, closing(Client(url, verbose=False)) as client:
            for endpoint in ("/trace", "/race"):
                assert client.predict(*asked, "race", api_name=endpoint)

    def experiment(self):
        assert self._act("measure-request", kv_precision="u8").startswith("Measured")

    def digits(self):
        _digits.cache_clear()  # so that they are compiled again
        assert self._act("draw-digits") == "Digits drawn"

    def another_pair(self):
        self.loader.load = lambda _: Dolly(tiny_folder())
        list(self.loader.change(replace(self.choice.pair, name="again"), self.turn))
        assert self.loader.engine() is not self.dolly

    def costs(self):
        assert self._act("measure-costs", kv_cache="window") == "Costs measured"

    def _act(self, name, **changes):
        """The last status of the action of this name."""
        form = [*replace(REQUEST, **changes).form.values()]
        *_, (views, _) = self.page.answer(action(name), Session(), "race", *form)
        return json.loads(json.loads(views)["header"]["value"])["line"]


@pytest.mark.parametrize("visit", [visit for visit in vars(Server) if not visit.startswith("_")])
def test_nothing_is_computed_outside_the_turn(visit, monkeypatch):
    server = Server(monkeypatch)
    getattr(server, visit)()
    assert server.inside
    assert not server.outside, server.outside[0]


def test_who_comes_during_a_race_computes_nothing_until_it_ends(monkeypatch):
    server = Server(monkeypatch)
    racing = server.turn.run(each for each in "ab")
    next(racing)
    others = [
        threading.Thread(target=visit)
        for visit in (server.race, server.costs, server.digits, server.another_pair)
    ]
    for other in others:
        other.start()
    wait_until(lambda: len(server.turn._places) == 1 + len(others))
    assert (server.inside, server.outside) == (0, [])
    racing.close()
    for other in others:
        other.join()
    assert server.inside
    assert not server.outside, server.outside[0]
