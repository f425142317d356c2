"""The Dockerfile, parsed: its stages, its user, and its health check against a real server."""

import json
import re
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path
from urllib.parse import urlsplit

from pipeline.errors import UserError
from tests.served import served

ROOT = Path(__file__).resolve().parents[1]


def instructions():
    """Each instruction and its arguments, in order, without comments; lines joined."""
    text = (ROOT / "Dockerfile").read_text()
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    joined = lines.replace("\\\n", " ").splitlines()
    return [tuple(line.split(maxsplit=1)) for line in joined if line.strip()]


def stages():
    """The instructions of each stage, by its name; the last one's is empty."""
    found = {}
    for name, arguments in instructions():
        if name == "FROM":
            image, _, stage = arguments.partition(" AS ")
            found[stage] = [("FROM", image)]
        else:
            found[stage].append((name, arguments))
    return found


def last(name):
    return [arguments for each, arguments in stages()[""] if each == name]


def health_check():
    """The command, as a list of arguments."""
    (check,) = last("HEALTHCHECK")
    return json.loads(check.partition("CMD ")[2])


def test_what_builds_stays_behind():
    """The last stage copies results of others, and nothing of the context."""
    assert [*stages()] == ["base", "packages", "files", ""]
    assert last("COPY") == ["--from=packages /venv /venv", "--from=files /app /app"]
    assert not [arguments for name, arguments in instructions() if name == "ADD"]


def test_the_packages_are_rebuilt_only_when_the_requirements_change():
    (copied,) = [arguments for name, arguments in stages()["packages"] if name == "COPY"]
    assert copied.split()[0] == "requirements-runtime.txt"
    assert (ROOT / "requirements-runtime.txt").is_file()


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
    program, *arguments = health_check()
    assert program == "python"
    environment = {"DOLLY_PORT": str(urlsplit(url).port)}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True)
    return done.returncode


def test_the_health_check_passes_when_the_models_are_loaded(url):
    assert checked(url) == 0


def test_the_health_check_fails_while_the_models_load():
    loading = Future()
    with served(loading) as url:
        assert checked(url) == 1
        loading.set_exception(UserError("model", "x", "choose another"))
        assert checked(url) == 1
