"""`app.py` in a process of its own, here with a process that is none."""

import socket
import subprocess
from types import SimpleNamespace

from lab.load import server
from lab.load.server import Server


def test_a_server_that_does_not_answer_is_not_ready(monkeypatch):
    going_on = SimpleNamespace(pid=1, poll=lambda: None)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: going_on)
    monkeypatch.setattr(server, "_ANSWER", 0.05)
    started = Server()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started.url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        assert not started._status()
