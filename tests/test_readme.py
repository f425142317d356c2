"""What the Markdown files name exists: files of the tree, modules, links and headings."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

import app
import experiments.__main__
import pipeline.__main__

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
WRITTEN = (
    *(README, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"),
    *(ROOT / "benchmarks" / "README.md", ROOT / "serving" / "README.md"),
)
MARKDOWN = (
    *WRITTEN,
    ROOT / "training" / "README.md",
    *sorted(ROOT.glob("assets/models/**/README.md")),
)
FLAG = r"(?<![\w-])--[a-z]+(?:-[a-z]+)*"
OTHERS = ("    docker", "    git", "    hf", "    pip")  # commands of other programs
LINE, WORDS = 100, 1200  # columns of a line of prose; words of the README

as_path = pytest.mark.parametrize("path", MARKDOWN, ids=lambda p: str(p.relative_to(ROOT)))


def body(path):
    """The text without the front matter that a Hugging Face Space reads."""
    text = path.read_text()
    return text.split("\n---\n", 1)[1] if text.startswith("---\n") else text


def tree():
    """Every path of the README's tree, and the folders whose files are listed below them."""
    paths, listing, stack = [], set(), []
    for line in body(README).split("\n## Source tree\n")[1].splitlines():
        if not line.startswith("    "):
            continue
        depth = (len(line) - len(line.lstrip()) - 4) // 2
        names = re.split(r"  +", line.strip())[0].split(", ")
        stack = stack[:depth]
        if stack:
            listing.add("".join(stack))
        paths += ["".join(stack) + name for name in names]
        stack.append(names[0])
    return paths, listing


def anchors(path):
    """The fragments of its headings, as GitHub forms them."""
    headings = re.findall(r"^#+ (.+)$", body(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_path_of_the_tree_exists():
    paths, _ = tree()
    assert len(paths) > 20
    missing = [path for path in paths if not (ROOT / path).exists()]
    assert missing == []
    assert [path for path in paths if (ROOT / path).is_dir() != path.endswith("/")] == []


def test_the_tree_names_every_module_or_its_folder():
    paths, listing = tree()
    closed = tuple(path for path in paths if path.endswith("/") and path not in listing)
    files = [*ROOT.glob("*.py")]
    for package in ROOT.glob("*/__init__.py"):
        files += package.parent.rglob("*.py")
    modules = [str(file.relative_to(ROOT)) for file in files if file.name != "__init__.py"]
    assert len(modules) > 100
    unnamed = [path for path in modules if path not in paths and not path.startswith(closed)]
    assert unnamed == []


@as_path
def test_every_relative_link_leads_somewhere(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", body(path)):
        if "://" in target:
            continue
        name, _, fragment = target.partition("#")
        linked = path.parent / name if name else path
        assert linked.exists(), target
        assert not fragment or fragment in anchors(linked), target


@as_path
def test_every_command_names_a_module_that_exists(path):
    for name in re.findall(r"python -m ([\w.]+\w)", body(path)):
        spec = find_spec(name)
        assert spec, name
        assert not spec.submodule_search_locations or find_spec(f"{name}.__main__"), name


def test_every_flag_of_the_readme_exists(capsys):
    for main in (app.main, pipeline.__main__.main, experiments.__main__.main):
        with pytest.raises(SystemExit):
            main(["--help"])
    known = set(re.findall(FLAG, capsys.readouterr().out))
    ours = [line for line in body(README).splitlines() if not line.startswith(OTHERS)]
    assert set(re.findall(FLAG, "\n".join(ours))) <= known


def test_the_readme_is_short():
    assert len(body(README).split()) < WORDS


@pytest.mark.parametrize("path", WRITTEN, ids=lambda p: str(p.relative_to(ROOT)))
def test_prose_wraps_evenly(path):
    tables_and_code = ("|", "    ", "  |")
    prose = [line for line in body(path).splitlines() if not line.startswith(tables_and_code)]
    assert [line for line in prose if len(line) > LINE] == []
