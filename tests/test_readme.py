"""What the Markdown files name exists: files of the tree, modules, links and headings."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

import app
import lab.__main__
import pipeline.__main__

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
WRITTEN = (
    *(README, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"),
    *(ROOT / "lab" / "README.md", ROOT / "serving" / "README.md"),
)
MARKDOWN = (
    *WRITTEN,
    ROOT / "lab" / "training" / "README.md",
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
    for main in (app.main, pipeline.__main__.main, lab.__main__.main):
        with pytest.raises(SystemExit):
            main(["--help"])
    known = set(re.findall(FLAG, capsys.readouterr().out))
    ours = [line for line in body(README).splitlines() if not line.startswith(OTHERS)]
    assert set(re.findall(FLAG, "\n".join(ours))) <= known


def saved(path):
    """A committed result."""
    return json.loads((ROOT / path).read_text())


def states(*claims):
    """Whether the README has each of these, however its lines are broken."""
    text = " ".join(body(README).split())
    return [claim for claim in claims if claim not in text] == []


def test_what_the_readme_says_of_losslessness_is_its_result():
    result = saved("lab/results/lossless.json")
    ways, answered = result["rows"], result["figures"]["answered"]
    assert {(way["races"], way["mismatches"]) for way in ways} == {(answered, 0)}
    assert len(ways) == 10
    assert len({way["drafter"] for way in ways}) == 5
    assert states(f"texts of {answered} held-out instructions identical, each in ten")


def test_the_speedups_of_the_readme_are_those_of_the_card():
    card = saved("assets/models/dolly-smol/evaluation.json")
    for name, kind in (("open", "hybrid, greedy, K = auto"), ("context", "hybrid, K = auto")):
        low, median, high = card[name][kind]["speedup"]
        assert re.search(rf"median {median:.2f}× .*{low:.2f}×, {high:.2f}×", body(README))
    block, model = (card["open"][f"{draft}greedy, K = 4"] for draft in ("", "draft model, "))
    assert states(
        f"{block['tokens_per_run']:.2f} tokens a target pass, {block['acceptance']:.0%}".replace(
            "%", " %"
        ),
        f"Draft model, K = 4: {model['tokens_per_run']:.2f} tokens, {model['speedup'][1]:.2f}×",
        f"`auto` {card['open']['greedy, K = auto']['speedup'][1]:.2f}×, sampled "
        f"{card['open']['sampled, K = auto']['speedup'][1]:.2f}×",
    )


def test_the_speedup_with_the_prompt_is_given_from_its_worst_row_to_its_best():
    result = saved("lab/results/paper.json")
    held_out = [row for row in result["rows"] if row["records"] == "held out"]
    speedups = [row["page_x"] for row in held_out]
    low, high = min(speedups), max(speedups)
    assert states(f"Prompt included, {low:.2f}× to {high:.2f}× ({held_out[0]['count']} records;")


def test_the_time_of_a_pass_of_five_tokens_is_within_what_was_measured():
    passes = [
        row["relative"]
        for name in ("widths", "larger")
        for row in saved(f"lab/results/{name}.json")["rows"]
        if row["tokens"] == 5 and row["model"].startswith("dolly-smol")
    ]
    times = saved("lab/results/rounds.json")["figures"]["widths"]["target"]["run_ms"]
    passes.append(times[4] / times[0])
    assert states(f"five tokens take {min(passes):.1f} to {max(passes):.1f} times as long as one")


def test_the_figures_of_other_engines_are_their_results():
    peers = {
        row["engine"]: row["over_fastest"]
        for row in saved("lab/results/peers.json")["rows"]
        if row["subject"] == "dolly-smol" and not row["failed"]
    }
    genai, llama = peers["OpenVINO GenAI"], peers["llama.cpp"]
    copies = (peers["llama.cpp, prompt lookup"], peers["OpenVINO GenAI, prompt lookup"])
    bench = {
        row["engine"]: row["all"]
        for row in saved("lab/results/spec_bench.json")["rows"]
        if not row["failed"]
    }
    assert states(
        f"itself {peers['this project']:.2f} times its fastest mode",
        f"llama.cpp {llama:.2f}, OpenVINO GenAI {genai:.2f}",
        f"ours (exact) {peers['this project, hybrid']:.2f}, llama.cpp {copies[0]:.2f}, "
        f"GenAI {copies[1]:.2f}",
        f"{bench['this project, hybrid']:.2f}× the fastest autoregression of any engine",
    )


def test_as_many_visitors_as_the_readme_says_wait_no_longer_than_they_have_patience():
    """By simulation of measured races; nothing is projected from random weights."""
    result = saved("lab/results/simulation.json")
    (claimed,) = re.findall(r"up to (\d+) visitors a minute", body(README))
    (row,) = (
        row
        for row in result["rows"]
        if (row["pair"], row["cores"], row["replicas"]) == ("dolly-smol", 2, 1)
        and row["visitors_per_minute"] == int(claimed)
    )
    assert row["simulated"]["p95"] <= result["patience_s"]
    hosting = body(README).split("## Hosting")[1]
    assert not re.search("12B|3B", hosting)


def test_the_readme_is_short():
    assert len(body(README).split()) < WORDS


@pytest.mark.parametrize("path", WRITTEN, ids=lambda p: str(p.relative_to(ROOT)))
def test_prose_wraps_evenly(path):
    tables_and_code = ("|", "    ", "  |")
    prose = [line for line in body(path).splitlines() if not line.startswith(tables_and_code)]
    assert [line for line in prose if len(line) > LINE] == []
