"""The command line, what importing the application does, and how it is stopped."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest
from gradio_client import Client

import app

ROOT = Path(__file__).resolve().parents[1]


def python(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        env=os.environ | environment,
    )


def test_help_names_the_flags():
    done = python("app.py", "--help")
    assert done.returncode == 0
    assert all(flag in done.stdout for flag in ("--pair", "--host", "--port", "--share"))


def test_the_environment_sets_what_the_flags_would():
    assert "(default: 3)" in python("app.py", "--help", DOLLY_QUEUE_SIZE="3").stdout
    done = python("app.py", DOLLY_PAIR="mine")
    assert done.returncode == 2
    assert done.stderr.startswith("pair: “mine” — ")
    own = python("app.py", "--target", "nobody/a", "--draft", "", DOLLY_PAIR="mine")
    assert own.stderr.startswith("draft: ")  # flags win


@pytest.mark.parametrize(("value", "on"), [("1", True), ("0", False), ("off", False)])
def test_a_switch_in_the_environment_is_off_where_it_says_so(monkeypatch, value, on):
    monkeypatch.setenv("DOLLY_FIXED_PAIR", value)
    assert app._parser().parse_args([]).fixed_pair is on


@pytest.mark.parametrize("name", ["PORT", "QUEUE_SIZE", "MAX_NEW_TOKENS"])
def test_a_bad_environment_is_said_and_status_2(name):
    done = python("app.py", **{f"DOLLY_{name}": "many"})
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "'many'" in done.stderr


def test_mcp_without_its_package_says_what_adds_it():
    done = python("-c", "import sys; sys.modules['mcp'] = None; import app; app.main(['--mcp'])")
    assert "pip install" in done.stderr
    assert "gradio[mcp]" in done.stderr


@pytest.mark.parametrize("pair", ["no-such-pair", "../../etc", "a\nb"])
def test_a_bad_pair_is_one_line_and_status_2(pair):
    done = python("app.py", "--pair", pair)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("pair: “")
    assert len(done.stderr.splitlines()) == 1


def test_where_visitors_may_not_choose_a_damaged_pair_is_one_line_and_status_2(tmp_path):
    for part in ("target", "draft"):
        (tmp_path / part).mkdir()
    done = python("app.py", "--fixed-pair", "--pair", str(tmp_path))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_importing_the_app_does_nothing():
    done = python(
        "-c", "import sys, app; print('gradio' in sys.modules, 'openvino' in sys.modules)"
    )
    assert done.stdout.split() == ["False", "False"]
    assert done.stderr == ""


def test_the_page_loads_neither_openvino_nor_torch():
    done = python(
        "-c",
        "import sys, ui.page; print({'openvino', 'torch', 'transformers'} & sys.modules.keys())",
    )
    assert done.stdout.split() == ["set()"]


def test_importing_the_page_writes_nothing():
    python("-c", "import ui.page")
    assert not list((ROOT / "ui").rglob("*.pyi"))


def test_sigterm_ends_the_race_and_the_process_within_five_seconds():
    app = subprocess.Popen(
        [sys.executable, "app.py"], cwd=ROOT, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        line = next(line for line in app.stdout if "http" in line)
        Thread(target=app.stdout.read, daemon=True).start()
        with closing(Client(line.split()[-1], verbose=False)) as client:
            asked = {"instruction": "Why?", "max_new_tokens": 400, "kv_cache": "uncached"}
            job = client.submit(**asked, temperature=2, api_name="/race")
            next(iter(job))
            app.send_signal(signal.SIGTERM)
            assert app.wait(timeout=5) == 0
    finally:
        app.kill()
        app.wait()
