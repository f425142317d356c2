"""The command line, and what importing the application does."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def python(*arguments):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT, timeout=120
    )


def test_help_names_the_flags():
    done = python("app.py", "--help")
    assert done.returncode == 0
    assert all(flag in done.stdout for flag in ("--pair", "--host", "--port", "--share"))


@pytest.mark.parametrize("pair", ["no-such-pair", "../../etc", "a\nb"])
def test_a_bad_pair_is_one_line_and_status_2(pair):
    done = python("app.py", "--pair", pair)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("pair: “")
    assert len(done.stderr.splitlines()) == 1


def test_a_damaged_pair_is_one_line_and_status_2(tmp_path):
    for part in ("target", "draft"):
        (tmp_path / part).mkdir()
    done = python("app.py", "--pair", str(tmp_path))
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
    assert not list((ROOT / "ui").glob("*.pyi"))
