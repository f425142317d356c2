"""The command line of the page, and what importing it does."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import app
from tests.waiting import PATIENCE, wait_until

LOADING = ("libopenvino_intel_cpu_plugin", "target/openvino_model.bin")  # mapped as models load
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


def test_help_names_the_flags():
    command = [sys.executable, "app.py", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert all(flag in done.stdout for flag in ("--pair", "--host", "--port", "--share"))


def test_the_environment_sets_what_the_flags_would(run, monkeypatch):
    monkeypatch.setenv("DOLLY_QUEUE_SIZE", "3")
    assert app._parser().parse_args([]).queue_size == 3
    monkeypatch.setenv("DOLLY_PAIR", "mine")
    assert run().err.startswith("pair: “mine” — ")
    assert run("--target", "nobody/a", "--draft", "").err.startswith("draft: ")  # flags win


def test_the_threads_and_the_replicas_are_numbers_also_from_the_environment(monkeypatch):
    monkeypatch.setenv("DOLLY_THREADS", "2")
    monkeypatch.setenv("DOLLY_REPLICAS", "3")
    args = app._parser().parse_args([])
    assert (args.threads, args.replicas, args.ray_address) == (2, 3, None)


def test_threads_below_none_are_one_line_and_status_2(run):
    assert run("--threads", "-1").err.startswith("threads: -1 — choose 1 to 1,024")


def test_replicas_without_ray_and_a_cluster_without_replicas_are_one_line(run, monkeypatch):
    monkeypatch.setattr(app, "find_spec", lambda _: None)
    written = run("--replicas", "2")
    assert written.err.startswith('replicas: 2 — they need Ray: pip install "ray[serve]==')
    assert run("--ray-address", "here:6379").err.startswith("ray address: “here:6379” — say how")


@pytest.mark.parametrize(("value", "on"), [("1", True), ("0", False), ("off", False)])
def test_a_switch_in_the_environment_is_off_where_it_says_so(monkeypatch, value, on):
    monkeypatch.setenv("DOLLY_FIXED_PAIR", value)
    assert app._parser().parse_args([]).fixed_pair is on


@pytest.mark.parametrize("name", ["PORT", "QUEUE_SIZE", "MAX_NEW_TOKENS"])
def test_a_bad_environment_is_said_and_status_2(run, monkeypatch, name):
    monkeypatch.setenv(f"DOLLY_{name}", "many")
    assert "'many'" in run().err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--port", "99999"), "port: 99999 — choose one from 1 to 65,535."),
        (("--port", "-1"), "port: -1 — choose one from 1 to 65,535."),
        (("--queue-size", "0"), "queue size: 0 — choose one from 1 to "),
        (("--host", "203.0.113.1"), "host: “203.0.113.1” — choose an address of this machine ("),
        (("--host", "no address"), "host: “no address” — choose an address of this machine ("),
        (("--threads", str(10**20)), f"threads: {10**20} — choose 1 to 1,024"),
        (("--ports",), "arguments: “unrecognized arguments: --ports” — see app.py --help."),
    ],
)
def test_a_flag_out_of_range_is_one_line_before_any_model_is_loaded(run, idle, arguments, line):
    written = run(*arguments).err
    assert written.startswith(line)
    assert written.count("\n") == 1


def test_a_port_out_of_range_in_the_environment_is_one_line(run, idle, monkeypatch):
    monkeypatch.setenv("DOLLY_PORT", "70000")
    assert run().err == "port: 70000 — choose one from 1 to 65,535.\n"


def test_a_port_in_use_is_one_line_before_any_model_is_loaded(run, idle):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run("--port", str(port)).err.startswith(f"port: {port} — choose another (")


def test_mcp_without_its_package_says_what_adds_it(run, idle, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert run("--mcp").err.startswith('mcp: “not installed” — pip install "gradio[mcp]==')


@pytest.mark.parametrize("loading", LOADING)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda each: each.name)
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


@pytest.mark.parametrize("pair", ["no-such-pair", "../../etc", "a\nb"])
def test_a_bad_pair_is_one_line_and_status_2(run, pair):
    written = run("--pair", pair)
    assert written.out == ""
    assert written.err.startswith("pair: “")
    assert len(written.err.splitlines()) == 1


def test_where_visitors_may_not_choose_a_damaged_pair_is_one_line_and_status_2(run, tmp_path):
    for part in ("target", "draft"):
        (tmp_path / part).mkdir()
    assert len(run("--fixed-pair", "--pair", str(tmp_path)).err.splitlines()) == 1


def test_importing_the_page_writes_nothing():
    """Gradio would write the stub of a component of one's own beside it."""
    assert not list((ROOT / "ui").rglob("*.pyi"))
