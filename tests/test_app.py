"""The command line of the page, and what importing it does."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import app
from tests.waiting import PATIENCE, wait_until

LOADING = (  # signals, and what is mapped as models load
    (signal.SIGINT, "libopenvino_intel_cpu_plugin"),
    (signal.SIGTERM, "target/openvino_model.bin"),
)
ROOT = Path(app.__file__).parent


@pytest.fixture
def run(capsys):
    """What the command with these arguments wrote to the terminal, after status 2."""

    def run(*arguments):
        assert app.main(arguments) == 2
        written = capsys.readouterr()
        assert "Traceback" not in written.err
        return written

    return run


@pytest.fixture
def idle(monkeypatch):
    """Fails where loading begins."""

    def serve(*_):
        pytest.fail("it began to load")

    monkeypatch.setattr(app, "_serve", serve)


@pytest.fixture(autouse=True)
def handlers():
    """Those of signals are the tests' own again after each."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_environment_sets_what_the_flags_would(run, monkeypatch):
    for name, value in {"QUEUE_SIZE": "3", "THREADS": "2", "REPLICAS": "4", "PAIR": "mine"}.items():
        monkeypatch.setenv(f"DOLLY_{name}", value)
    args = app._parser().parse_args([])
    assert (args.queue_size, args.threads, args.replicas, args.ray_address) == (3, 2, 4, None)
    for value, on in (("1", True), ("0", False), ("off", False)):
        monkeypatch.setenv("DOLLY_FIXED_PAIR", value)
        assert app._parser().parse_args([]).fixed_pair is on
    assert run().err.startswith("pair: “mine” — ")
    assert run("--target", "nobody/a", "--draft", "").err.startswith("draft: ")  # flags win


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("PORT", "70000", "port: 70000 — choose one from 1 to 65,535.\n"),
        ("PORT", "many", "'many'"),
        ("QUEUE_SIZE", "many", "'many'"),
        ("MAX_NEW_TOKENS", "many", "'many'"),
    ],
)
def test_a_bad_environment_is_one_line(run, idle, monkeypatch, name, value, line):
    monkeypatch.setenv(f"DOLLY_{name}", value)
    assert line in run().err


def test_what_is_not_installed_or_not_asked_for_is_one_line(run, monkeypatch):
    monkeypatch.setattr(app, "find_spec", lambda _: None)
    with monkeypatch.context() as elsewhere:
        elsewhere.delattr("os.sched_getaffinity")
        assert run("--replicas", "2").err == "replicas: 2 — they need Linux; leave it out.\n"
    written = run("--replicas", "2")
    assert written.err.startswith('replicas: 2 — they need Ray: pip install "ray[serve]==')
    assert run("--ray-address", "here:6379").err.startswith("ray address: “here:6379” — say how")
    assert run("--mcp").err.startswith('mcp: “not installed” — pip install "gradio[mcp]==')


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--port", "99999"), "port: 99999 — choose one from 1 to 65,535."),
        (("--port", "-1"), "port: -1 — choose one from 1 to 65,535."),
        (("--queue-size", "0"), "queue size: 0 — choose one from 1 to "),
        (("--host", "203.0.113.1"), "host: “203.0.113.1” — choose an address of this machine ("),
        (("--host", "no address"), "host: “no address” — choose an address of this machine ("),
        (("--threads", "-1"), "threads: -1 — choose 1 to 1,024"),
        (("--threads", str(10**20)), f"threads: {10**20} — choose 1 to 1,024"),
        (("--ports",), "arguments: “unrecognized arguments: --ports” — see app.py --help."),
    ],
)
def test_a_flag_out_of_range_is_one_line_before_any_model_is_loaded(run, idle, arguments, line):
    written = run(*arguments).err
    assert written.startswith(line)
    assert written.count("\n") == 1


def test_a_port_in_use_is_one_line_before_any_model_is_loaded(run, idle):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run("--port", str(port)).err.startswith(f"port: {port} — choose another (")


@pytest.mark.parametrize(("number", "loading"), LOADING)
def test_a_signal_while_the_models_load_ends_it_with_status_0(number, loading):
    process = program()
    wait_until(lambda: loading in Path(f"/proc/{process.pid}/maps").read_text())
    process.send_signal(number)
    _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (0, "")


def test_a_port_that_is_taken_while_the_models_load_is_one_line_and_status_2():
    """Gradio wants the port of the loopback too, whatever the host."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = program("--host", "127.0.0.2", "--port", str(port))
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert errors.startswith(f"port: {port} — choose another (")
    assert errors.count("\n") == 1


DROPPED = """
import os, signal, sys, weakref
from types import SimpleNamespace
import app

class Opened:
    def __init__(self, *_):
        thing = set()
        self.ref = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGTERM))
        del thing

    def serve(self, *_):
        pass

    close = serve

def goes_on(loader):
    raise AssertionError("it goes on")

sys.modules["ui.run.loader"] = SimpleNamespace(Loader=lambda *_: None)
sys.modules["ui.page"] = SimpleNamespace(Page=Opened)
app._report_failure = goes_on
sys.unraisablehook = lambda _: None  # reports the drop
sys.exit(app.main([]))
"""


def test_a_signal_that_an_import_drops_ends_it_all_the_same():
    """A page during whose imports a signal comes in a callback, in a process of its own: it would
    come to whatever else runs in this one.
    """
    done = subprocess.run([sys.executable, "-c", DROPPED], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def program(*flags):
    """`app.py` in a process of its own, with the embedded pair."""
    return subprocess.Popen(
        [sys.executable, "app.py", *flags],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("pair", ["no-such-pair", "../../etc", "a\nb", "damaged"])
def test_a_bad_pair_is_one_line_and_status_2(run, tmp_path, pair):
    flags = ("--pair", pair)
    if pair == "damaged":
        for part in ("target", "draft"):
            (tmp_path / part).mkdir()
        flags = ("--fixed-pair", "--pair", str(tmp_path))
    written = run(*flags)
    assert written.out == "" or pair == "damaged"  # the page is open by then
    assert len(written.err.splitlines()) == 1


def test_importing_the_page_writes_nothing():
    """Gradio would write the stub of a component of one's own beside it."""
    assert not list((ROOT / "ui").rglob("*.pyi"))
