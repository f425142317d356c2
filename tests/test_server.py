"""`app.py` in a process of its own, here with processes that are none."""

import socket
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest

from lab.load import server
from lab.load.server import Server, running


@pytest.fixture
def started(monkeypatch):
    going_on = SimpleNamespace(pid=1, poll=lambda: None)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: going_on)
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


def test_a_process_that_has_ended_is_not_running_and_has_no_memory():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        process = psutil.Process(child.pid)
        assert running(process)
    assert not running(process)
    assert server._resident(process) == 0
    assert server._command(process) == ""
