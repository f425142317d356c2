"""`app.py` in a process of its own, here with processes that are none."""

import socket
import subprocess

import pytest

from lab.load import server
from lab.load.server import Server


class Running:
    """A process that goes on."""

    pid = 1

    def poll(self):
        return None


@pytest.fixture
def started(monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: Running())
    return Server()


def test_a_server_that_does_not_answer_is_not_ready(started, monkeypatch):
    monkeypatch.setattr(server, "_ANSWER", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started.url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        assert not started._ready()


def test_what_a_server_wrote_is_closed_also_where_it_does_not_end(started, monkeypatch):
    def terminate():
        raise subprocess.TimeoutExpired("app.py", 1)

    monkeypatch.setattr(started, "terminate", terminate)
    with pytest.raises(subprocess.TimeoutExpired), started:
        pass
    assert started._output.closed
    assert started._errors.closed
