"""What a visitor may not do (`SECURITY.md`), where no other test holds the line."""

import ast
import json
import re
import socket
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from gradio_client import Client

from pipeline.models.choice import Choice
from pipeline.models.pairs import EMBEDDED, PAIRS
from tests.fake_dolly import PAIR, Everything, FakeDolly, loader_of
from tests.served import PLAIN, event, served, served_page
from tests.waiting import PATIENCE, wait_until
from ui import hosts
from ui.page import Page
from ui.run.loader import Loader
from ui.run.recorded import LARGEST

ROOT = Path(__file__).resolve().parents[1]
WEIGHTS = next(EMBEDDED.glob("target/*.bin"))
OPEN = (  # addresses that need no secret
    *("", "config", "ready", "v1/models", "gradio_api/info", "gradio_api/queue/status"),
    *("gradio_api/startup-events", "monitoring", "monitoring/summary"),
)
NAMED = r"`tests/(\w+\.py)::(\w+)`"


def answer(url, number, data):
    """The last message to who joins the queue for the event."""
    asked = {"fn_index": number, "session_hash": "mine", "data": data}
    assert httpx.post(f"{url}gradio_api/queue/join", json=asked).status_code == 200
    waiting = {"params": {"session_hash": "mine"}, "timeout": PATIENCE}
    with httpx.stream("GET", f"{url}gradio_api/queue/data", **waiting) as events:
        for line in filter(None, events.iter_lines()):
            message = json.loads(line.removeprefix("data: "))
            if message["msg"] == "process_completed":
                return message
    raise AssertionError("no answer")


def test_every_test_that_the_threat_model_names_exists():
    named = re.findall(NAMED, (ROOT / "SECURITY.md").read_text())
    assert len(named) > 15
    for file, name in named:
        tree = ast.parse((ROOT / "tests" / file).read_text())
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert name in names, f"{file}::{name}"


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        str(ROOT / "app.py"),
        str(WEIGHTS),
        "app.py",
        "../../../../../../../../etc/passwd",
        "..%2f..%2f..%2f..%2f..%2fetc%2fpasswd",
        "file:///etc/passwd",
        str(ROOT / "assets" / ".." / "app.py"),
    ],
)
def test_no_file_of_the_server_can_be_read(url, path):
    reply = httpx.get(f"{url}gradio_api/file={path}")
    assert reply.status_code in (403, 404)
    assert b"root:" not in reply.content
    assert b"import" not in reply.content


def test_an_upload_larger_than_the_limit_is_refused(url):
    file = {"files": ("trace.json", b" " * (LARGEST + 1))}
    assert httpx.post(f"{url}gradio_api/upload", files=file, timeout=PATIENCE).status_code == 413


# --- other addresses ------------------------------------------------------------------------------


def test_the_server_fetches_no_address_for_a_visitor(url):
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        there = f"http://127.0.0.1:{elsewhere.getsockname()[1]}/trace.json"
        for path in (f"proxy={there}", f"file={there}"):
            assert httpx.get(f"{url}gradio_api/{path}").status_code in range(400, 500)
        file = {"path": there, "url": there, "meta": {"_type": "gradio.FileData"}}
        asked = {"fn_index": event(url, "upload", "Open a trace"), "data": [None, file]}
        reply = httpx.post(f"{url}gradio_api/run/predict", json=asked | {"session_hash": "mine"})
        assert reply.json()["error"]
        elsewhere.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody has connected
            elsewhere.accept()


@pytest.mark.parametrize(
    "path", ["process_recording", "vibe-code", "vibe-edit/", "undo-vibe-edit", "dev/reload"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_the_page_never_asks_of_gradio_is_not_there(url, method, path):
    body = {"code": "print('mine')", "prompt": "any", "hash": "any"}
    reply = httpx.request(method, f"{url}gradio_api/{path}", json=body)
    line = f"address: “/gradio_api/{path}” — the page has no use for it; see /gradio_api/info."
    assert (reply.status_code, reply.json()) == (404, {"detail": line})


FOREIGN = ("evil.example", "evil.example:7860", "127.0.0.1.evil.example", "[::2]:80", "10.0.0.7")
OWN = ("localhost", "localhost:1", "127.0.0.1", "127.0.0.1:99", "[::1]", "[::1]:7860", "LocalHost")


def called(url, host, path):
    return httpx.get(f"{url}{path}", headers={"Host": host})


def test_a_server_of_this_machine_alone_refuses_foreign_names(url, caplog):
    """Of a web page elsewhere whose name leads here (DNS rebinding)."""
    for path in OPEN:
        for host in FOREIGN:
            reply = called(url, host, path)
            assert reply.status_code == 403, (host, path)
            line = f"Host header: “{host}” — open this server as localhost, or set --host."
            body = reply.json()
            assert line == (body["error"]["message"] if path[:2] == "v1" else body["detail"])
    for host in OWN:
        assert called(url, host, "ready").status_code == 200, host
    assert len(called(url, "x" * 5000, "ready").content) < 200
    assert all("\n" not in record.message for record in caplog.records)


@pytest.mark.parametrize(
    ("hosts_", "share", "space", "local"),
    [
        ((None, "127.0.0.1", "127.0.0.2", "localhost", "[::1]", "::1"), False, False, True),
        (("0.0.0.0", "::", "192.168.0.7", "dolly.example"), False, False, False),
        ((None,), True, False, False),
        ((None,), False, True, False),
    ],
)
def test_names_are_checked_where_no_other_machine_comes(monkeypatch, hosts_, share, space, local):
    if space:
        monkeypatch.setenv("SYSTEM", "spaces")
        monkeypatch.setenv("SPACE_ID", "someone/dolly")
    assert {hosts.is_local(host, share) for host in hosts_} == {local}


def test_a_server_for_other_machines_answers_to_every_name():
    page = Page(loader_of(FakeDolly(PLAIN)))
    with closing(page):
        url = page.serve("0.0.0.0")
        assert called(url, "dolly.example", "ready").status_code == 200


# --- models ---------------------------------------------------------------------------------------


OTHER = "dolly-v2-3b"


def loaded_after(names, fixed=False):
    """The pairs that were loaded, after a visitor asked for those of these names."""
    loaded = []

    def load(choice):
        loaded.append(choice.pair.name)
        return FakeDolly(PLAIN)

    loader = Loader(Choice(PAIR, Everything()), load, fixed)
    with served_page(Page(loader)) as url:
        wait_until(lambda: loader.done)
        for name in names:
            answer(url, event(url, "click", "Load"), [None, name, "model"])
    return loaded


def test_a_visitor_cannot_name_a_model_of_the_hub_or_a_folder():
    """Only a pair of the menu; it runs no code of its own."""
    names = ("nobody/weights", PAIRS[OTHER].target.id, "/etc", "../models", "", 5, None, [OTHER])
    assert OTHER not in loaded_after(names)
    assert loaded_after([OTHER]) == [PAIR.name, OTHER]
    models = [model for pair in PAIRS.values() for model in (pair.target, pair.draft)]
    assert not any(model.remote_code for model in models)


def test_where_the_pair_is_fixed_no_visitor_loads_another():
    assert loaded_after([OTHER, PAIR.name], fixed=True) == [PAIR.name]


# --- memory and time ------------------------------------------------------------------------------


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    "path", ["call/trace", "queue/join", "run/predict", "cancel", "component_server"]
)
def test_a_call_larger_than_any_request_is_refused_in_one_line(url, caplog, path, chunked):
    body = b'{"data": ["' + b"x" * (5 * 2**20) + b'"]}'
    content = iter([body]) if chunked else body
    reply = httpx.post(
        f"{url}gradio_api/{path}",
        content=content,
        headers={"Content-Type": "application/json"},
        timeout=PATIENCE,
    )
    line = "body: “too large” — send at most 4 MB."
    assert (reply.status_code, reply.json()) == (413, {"detail": line})
    assert [record.getMessage() for record in caplog.records if record.name == "ui.inputs"] == [
        line
    ]


# --- other visitors -------------------------------------------------------------------------------


def test_no_open_address_has_a_visitors_texts():
    dolly = FakeDolly(PLAIN)
    with served(dolly) as url, closing(Client(url, verbose=False)) as client:
        secret = "A secret of the first visitor"
        client.predict(secret, max_new_tokens=4, api_name="/trace")
        for path in OPEN:
            assert secret not in httpx.get(f"{url}{path}").text
