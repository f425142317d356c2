"""The folder of a Space: it has what serves the page, and serves it alone."""

import re
import subprocess
import sys

import pytest

from serving.space import ROOT, main
from tests.raced import assert_serves_a_race, environment

TOP = (
    *("LICENSE", "NOTICE", "README.md", "app.py", "assets", "lab"),
    *("pipeline", "requirements.txt", "ui"),
)
REQUIREMENT = r"^([\w.-]+)==([\w.]+)"


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spaces") / "new" / "space"
    assert main([str(folder)]) == 0
    return folder


def files_of(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def tracked(*folders):
    """The repository's files there."""
    command = ["git", "ls-files", *folders]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {*listed.stdout.split()}


def test_it_holds_what_the_page_needs_and_nothing_else(space):
    assert sorted(path.name for path in space.iterdir()) == sorted(TOP)
    folders = ("pipeline", "lab", "ui", "assets")
    pictures = (".png", ".svg", ".webp")
    left_out = ("lab/engines/", "lab/load/", "lab/training/")
    needed = {
        name
        for name in tracked(*folders)
        if not (name.endswith(pictures) or name.startswith(left_out))
    }
    alone = {*TOP} - {*folders}
    assert files_of(space) == needed | alone


def test_every_file_is_the_repositorys_and_requirements_are_the_runtimes(space):
    for name in files_of(space) - {"README.md", "requirements.txt"}:
        assert (space / name).read_bytes() == (ROOT / name).read_bytes(), name
    required = (space / "requirements.txt").read_text()
    assert required == (ROOT / "requirements-runtime.txt").read_text()
    assert {"torch", "pytest"}.isdisjoint(dict(re.findall(REQUIREMENT, required, re.MULTILINE)))


def test_its_readme_is_a_space_with_the_gradio_that_is_required(space):
    text = (space / "README.md").read_text()
    _, front, body = text.split("---\n", 2)
    fields = dict(re.findall(r"^(\w+): (.+)$", front, re.MULTILINE))
    versions = dict(re.findall(REQUIREMENT, (space / "requirements.txt").read_text(), re.MULTILINE))
    assert (fields["sdk"], fields["sdk_version"]) == ("gradio", versions["gradio"])
    assert (space / fields["app_file"]).is_file()
    assert body.strip().startswith("# Dolly, twice\n")
    assert "CC BY-SA 4.0" in body
    for target in re.findall(r"\]\(([^)\s]+)\)", body):
        assert "://" in target or (space / target).exists(), target


def test_a_folder_with_files_of_its_own_is_refused_in_one_line(tmp_path, capsys):
    (tmp_path / "app.py").write_text("mine")
    (tmp_path / "other").mkdir()
    assert main([str(tmp_path)]) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.startswith("folder: “")
    assert "is not empty (app.py and 1 more); empty it, or name another folder." in written.err
    assert len(written.err.splitlines()) == 1
    assert files_of(tmp_path) == {"app.py"}
    assert (tmp_path / "app.py").read_text() == "mine"


def test_a_place_that_cannot_be_a_folder_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main([str(tmp_path / "file")]) == 2
    assert main([str(tmp_path / "file" / "space")]) == 2
    assert [line[:9] for line in capsys.readouterr().err.splitlines()] == ["folder: “"] * 2


# --- served from there ----------------------------------------------------------------------------


def test_the_page_serves_a_race_from_the_folder(space):
    """`.ci/run` has an environment for it that knows no other folder and no PyTorch."""
    command = [sys.executable, "-u", "app.py", "--fixed-pair"]
    assert_serves_a_race(command, space, environment(PYTHONDONTWRITEBYTECODE="1"))
    assert not list(space.rglob("__pycache__"))
