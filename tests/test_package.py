"""What is installed: the requirements files and the wheel, whose command serves from any folder."""

import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from pipeline.models.pairs import DEFAULT_PAIR
from tests.raced import assert_serves_a_race, environment

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = ("pipeline", "ui", "serving", "lab", "assets")


def declared(*extras):
    """The project's requirements with those extras, and with those that they name."""
    groups = PROJECT["project"]["optional-dependencies"]
    found = {*PROJECT["project"]["dependencies"]}
    for requirement in [each for extra in extras for each in groups[extra]]:
        own = re.fullmatch(r"dolly-twice\[([\w,]+)\]", requirement)
        found |= declared(*own[1].split(",")) if own else {requirement}
    return found


def required(name):
    """What a requirements file installs, with the files that it reads."""
    lines = [line.split("#")[0].strip() for line in (ROOT / name).read_text().splitlines()]
    found = {line for line in lines if line and not line.startswith("-r ")}
    return found.union(*(required(line[3:]) for line in lines if line.startswith("-r ")))


@pytest.mark.parametrize(
    ("name", "extras"),
    [
        ("requirements-runtime.txt", ()),
        ("requirements.txt", ("convert",)),
        ("requirements-dev.txt", ("dev",)),
    ],
)
def test_the_requirements_are_the_projects(name, extras):
    assert required(name) == declared(*extras)
    assert all(re.fullmatch(r"[\w.-]+(\[\w+\])?==[\w.]+", each) for each in required(name))


def test_there_are_no_other_requirements():
    assert {*PROJECT["build-system"]["requires"]} < declared("dev")
    assert len([*ROOT.glob("requirements*.txt")]) == 3
    assert not [*ROOT.glob("*/requirements*.txt")]


def test_the_message_about_ray_names_the_version_that_is_required():
    (ray,) = PROJECT["project"]["optional-dependencies"]["serving"]
    assert f'pip install "{ray}"' in (ROOT / "app.py").read_text()


# --- the wheel ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT)
    subprocess.run([sys.executable, "-m", "pip", *build], check=True)
    (file,) = folder.iterdir()
    return file


@pytest.fixture(scope="module")
def programs(wheel, tmp_path_factory):
    """The programs of an environment with the wheel, and with the packages of this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    places = {"base": str(folder), "platbase": str(folder)}
    there = Path(sysconfig.get_path("purelib", vars=places))
    paths = [path for path in sys.path if path.endswith("site-packages")]
    (there / "shared.pth").write_text("\n".join(paths))
    install = ("install", "--quiet", "--no-deps", "--no-index", "--no-compile", wheel)
    subprocess.run([sys.executable, "-m", "pip", "--python", python, *install], check=True)
    return python.parent


@pytest.fixture
def ran(programs, tmp_path):
    """Runs a program in an empty folder."""

    def run(name, *arguments):
        command = [programs / name, *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=environment(), capture_output=True, text=True
        )

    return run


def test_the_wheel_is_one_package_with_every_file_that_the_commands_read(wheel):
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    command = ["git", "ls-files", *FOLDERS]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    left_out = (".png", ".svg", ".webp", ".safetensors")
    read = {name for name in listed.stdout.split() if not name.endswith(left_out)}
    own = {"dolly_twice/__init__.py", "dolly_twice/__main__.py", "dolly_twice/app.py"}
    assert held == own | {f"dolly_twice/{name}" for name in read}
    assert "dolly_twice/pipeline/py.typed" in held
    assert f"dolly_twice/assets/models/{DEFAULT_PAIR}/target/openvino_model.xml" in held


def test_its_names_are_hidden_from_others(ran):
    code = f"import importlib.util as u; print([n for n in {FOLDERS} if u.find_spec(n)])"
    assert ran("python", "-I", "-c", code).stdout == "[]\n"


def test_the_command_runs_from_any_folder_and_what_is_no_command_is_one_line(ran, tmp_path):
    (tmp_path / "pipeline.py").write_text("raise SystemExit('not this one')")
    listed = ran("dolly", "ask", "--list-pairs")
    assert listed.returncode == 0, listed.stderr
    assert "  ready\n" in listed.stdout
    assert "lossless" in ran("dolly", "lab", "--list").stdout
    failed = ran("dolly", "convert", "no such model", "--cache-dir", "cache")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert {path.name for path in tmp_path.iterdir()} == {"pipeline.py", "cache"}
    wrong = ran("dolly", "sevre")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "command: “sevre” — choose from serve, ask, convert, lab.\n"
    helped = ran("dolly", "--help")
    assert helped.returncode == 0
    assert all(name in helped.stdout for name in ("serve", "ask", "convert", "lab"))


def test_it_serves_a_race_from_any_folder(programs, tmp_path):
    command = [programs / "dolly", "serve", "--fixed-pair"]
    assert_serves_a_race(command, tmp_path, environment())
    assert [*tmp_path.iterdir()] == []
