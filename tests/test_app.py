"""The command line of the page, and what importing it does."""

import subprocess
import sys
from pathlib import Path

import pytest

import app
from pipeline.errors import UserError
from tests.fake_dolly import FakeDolly, loader_of
from tests.served import PLAIN
from ui.page import Page

ROOT = Path(app.__file__).parent


@pytest.fixture
def run(capsys):
    """What the command with these arguments wrote to the terminal, after status 2."""

    def run(*arguments):
        try:
            status = app.main(arguments)
        except SystemExit as exit:  # of argparse
            status = exit.code
        assert status == 2
        written = capsys.readouterr()
        assert "Traceback" not in written.err
        return written

    return run


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
    assert run("--threads", "-1").err.startswith("threads: -1 — choose 1 or more")


def test_replicas_without_ray_and_a_cluster_without_replicas_are_one_line(run, monkeypatch):
    monkeypatch.setattr("serving.cluster.find_spec", lambda _: None)
    written = run("--replicas", "2")
    assert written.err.startswith("replicas: 2 — they need Ray: pip install -r requirements-ser")
    assert run("--ray-address", "here:6379").err.startswith("ray address: “here:6379” — say how")


@pytest.mark.parametrize(("value", "on"), [("1", True), ("0", False), ("off", False)])
def test_a_switch_in_the_environment_is_off_where_it_says_so(monkeypatch, value, on):
    monkeypatch.setenv("DOLLY_FIXED_PAIR", value)
    assert app._parser().parse_args([]).fixed_pair is on


@pytest.mark.parametrize("name", ["PORT", "QUEUE_SIZE", "MAX_NEW_TOKENS"])
def test_a_bad_environment_is_said_and_status_2(run, monkeypatch, name):
    monkeypatch.setenv(f"DOLLY_{name}", "many")
    assert "'many'" in run().err


def test_mcp_without_its_package_says_what_adds_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(UserError, match=r'^mcp: .*pip install "gradio\[mcp\]=='):
        Page(loader_of(FakeDolly(PLAIN))).serve(mcp=True)


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
