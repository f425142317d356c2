"""The Dockerfile, parsed: its stages, its user, and its health check against a real server."""

import json
import re
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path
from urllib.parse import urlsplit

from tests.fake_dolly import FakeDolly
from tests.served import PLAIN, served
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[1]


def stages():
    """The instructions of each stage and their arguments, by its name; the last one's is empty."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    found = {}
    for line in filter(str.strip, text.replace("\\\n", " ").splitlines()):
        name, arguments = line.split(maxsplit=1)
        if name == "FROM":
            arguments, _, stage = arguments.partition(" AS ")
            found[stage] = []
        found[stage].append((name, arguments))
    return found


def last(name):
    return [arguments for each, arguments in stages()[""] if each == name]


def test_what_builds_stays_behind():
    """The last stage copies results of others, and nothing of the context."""
    assert [*stages()] == ["base", "packages", "files", ""]
    assert last("COPY") == ["--from=packages /venv /venv", "--from=files /app /app"]
    assert "ADD" not in {name for each in stages().values() for name, _ in each}


def test_the_image_is_pinned_to_the_python_of_the_space():
    image = dict(stages()["base"])["FROM"]
    front = (ROOT / "README.md").read_text().split("---\n")[1]
    (version,) = re.findall(r'^python_version: "([\d.]+)"$', front, re.MULTILINE)
    assert image == f"python:{version}-slim"


def test_the_files_are_those_of_the_space():
    assert ("RUN", "python -m serving.space /app") in stages()["files"]
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert not {"serving", "lab", "assets", "README.md"} & {*ignored}


def test_no_root_and_no_shell_runs_the_program():
    names = [name for name, _ in stages()[""]]
    assert last("USER") == ["1000"]
    assert any("useradd" in command and "--uid 1000" in command for command in last("RUN"))
    assert "RUN" not in names[names.index("USER") :]
    (command,) = last("CMD")
    assert json.loads(command) == ["python", "app.py"]


def test_the_port_that_is_served_is_the_one_that_is_published():
    environment = dict(re.findall(r"(\w+)=(\S+)", *last("ENV")))
    assert [environment["DOLLY_PORT"]] == last("EXPOSE")
    assert environment["DOLLY_HOST"] == "0.0.0.0"


def checked(url):
    """The exit status of the health check for the server there."""
    (check,) = last("HEALTHCHECK")
    program, *arguments = json.loads(check.partition("CMD ")[2])
    assert program == "python"
    environment = {"DOLLY_PORT": str(urlsplit(url).port)}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True)
    return done.returncode


def test_the_health_check_passes_once_the_models_are_loaded():
    loading = Future()
    with served(loading) as url:
        assert checked(url) == 1
        loading.set_result(FakeDolly(PLAIN))
        wait_until(lambda: checked(url) == 0)
