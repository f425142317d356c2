"""What the Markdown files name exists, and their figures are those of committed results."""

import json
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

import app
import lab.__main__
import pipeline.__main__
from pipeline.models.pairs import DEFAULT_PAIR, EMBEDDED

ROOT = Path(__file__).parents[1]
README, DOCS = ROOT / "README.md", ROOT / "docs"
RESULTS, ARCHITECTURE, HOSTING = DOCS / "results.md", DOCS / "architecture.md", DOCS / "hosting.md"
WRITTEN = (*ROOT.glob("*.md"), *sorted(DOCS.glob("*.md")), ROOT / "serving" / "README.md")
MARKDOWN = (*WRITTEN, *ROOT.glob("lab/**/README.md"), *ROOT.glob("assets/models/**/README.md"))
FLAG = r"(?<![\w-])--[a-z]+(?:-[a-z]+)*"
OTHERS = ("    docker", "    git", "    hf", "    pip")  # commands of other programs
LINE = 100  # columns of a line of prose
WORDS = {README: 900, RESULTS: 4000}

as_path = pytest.mark.parametrize("path", MARKDOWN, ids=lambda p: str(p.relative_to(ROOT)))


def body(path):
    """The text without the front matter that a Hugging Face Space reads."""
    text = path.read_text()
    return text.split("\n---\n", 1)[1] if text.startswith("---\n") else text


def anchors(path):
    """The fragments of its headings, as GitHub forms them."""
    headings = re.findall(r"^#+ (.+)$", body(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# --- names ----------------------------------------------------------------------------------------


def test_every_folder_of_the_tree_exists_and_every_package_has_a_line():
    paths, stack = [], []
    for line in body(ARCHITECTURE).splitlines():
        if line.startswith("    "):
            depth = (len(line) - len(line.lstrip()) - 4) // 2
            name, about = re.split(r"  +", line.strip(), maxsplit=1)
            assert about
            stack = [*stack[:depth], name]
            paths.append("".join(stack))
    assert [path for path in paths if (ROOT / path).is_dir() != path.endswith("/")] == []
    packages = {
        f"{file.parent.relative_to(ROOT)}/"
        for pattern in ("*/__init__.py", "pipeline/**/__init__.py", "ui/**/__init__.py")
        for file in ROOT.glob(pattern)
    }
    assert len(packages) > 10
    assert packages - {*paths} == set()


def test_the_files_to_touch_exist():
    section = body(ARCHITECTURE).split("\n## To add\n")[1].split("\n## ")[0]
    named = re.findall(r"`([\w/.]+\.py)`", section)
    assert len(named) > 8
    assert [path for path in named if "NAME" not in path and not (ROOT / path).is_file()] == []
    assert [path for path in named if not (ROOT / path).parent.is_dir()] == []


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
    lines = (body(README) + body(HOSTING).split("\n## Docker\n")[0]).splitlines()
    ours = [line for line in lines if not line.startswith(OTHERS)]
    assert set(re.findall(FLAG, "\n".join(ours))) <= known


@pytest.mark.parametrize("path", WRITTEN, ids=lambda p: str(p.relative_to(ROOT)))
def test_prose_is_short_and_wraps_evenly(path):
    tables_and_code = ("|", "    ", "  |")
    prose = [line for line in body(path).splitlines() if not line.startswith(tables_and_code)]
    assert [line for line in prose if len(line) > LINE] == []
    assert len(body(path).split()) <= WORDS.get(path, 2500)


# --- figures --------------------------------------------------------------------------------------


@cache
def saved(name):
    """A committed result of the laboratory, or the evaluation behind the model card."""
    card = EMBEDDED / "evaluation.json"
    return json.loads((card if name == "card" else ROOT / f"lab/results/{name}.json").read_text())


def states(path, *claims):
    """Whether a document has each of these, however its lines are broken."""
    text = " ".join(body(path).split())
    return [claim for claim in claims if claim not in text] == []


def spread(low, median, high):
    """A median and its quartiles, as tables show them."""
    return f"{median:.2f} [{low:.2f}, {high:.2f}]"


def test_losslessness_is_its_result():
    result, variants = saved("lossless"), saved("sampled")["rows"]
    ways, answered = result["rows"], result["figures"]["answered"]
    assert {(way["races"], way["mismatches"]) for way in ways} == {(answered, 0)}
    assert (len(ways), len({way["drafter"] for way in ways})) == (10, 5)
    assert states(README, f"texts of {answered} held-out instructions identical, each in ten")
    assert states(RESULTS, f"{answered * 10:,} of {answered * 10:,} texts identical")
    *exact, wrong = sorted(variants, key=lambda row: "wrong" in row["verification"])
    smallest = min(row["p"] for row in exact)
    assert wrong["p"] < 5e-4 < smallest
    claims = f"{len(exact)} ways of decoding", f"smallest p {smallest:.3f}, limit 5e-4"
    assert states(RESULTS, *claims, f"p = {wrong['p']:.0e}")


def test_speedups_are_those_of_the_card():
    for title, part, kind in (
        ("as the page begins (hybrid, `auto`), greedy", "open", "hybrid, greedy, K = auto"),
        ("as the page begins, with a context, greedy", "context", "hybrid, K = auto"),
        ("block draft, K = 4, greedy", "open", "greedy, K = 4"),
        ("block draft, `auto`, greedy", "open", "greedy, K = auto"),
        ("block draft, `auto`, sampled", "open", "sampled, K = auto"),
        ("draft model, K = 4, greedy", "open", "draft model, greedy, K = 4"),
    ):
        row = saved("card")[part][kind]
        low, median, high = row["speedup"]
        if title.startswith("as the page begins"):
            assert re.search(rf"median {median:.2f}× .*{low:.2f}×, {high:.2f}×", body(README))
        figures = f"{100 * row['acceptance']:.0f} % | {row['tokens_per_run']:.2f}"
        assert states(RESULTS, f"| {title} | {figures} | {median:.2f}× ({low:.2f}–{high:.2f}) |")


def test_the_speedup_with_the_prompt_is_given_from_its_worst_row_to_its_best():
    held_out = [row for row in saved("paper")["rows"] if row["records"] == "held out"]
    speedups = sorted(row["page_x"] for row in held_out)
    low, high = speedups[0], speedups[-1]
    count = held_out[0]["count"]
    assert states(README, f"Prompt included, {low:.2f}× to {high:.2f}× ({count} records;")
    assert states(RESULTS, *(f"{speedup:.2f}× |" for speedup in speedups))


def test_the_time_of_a_pass_of_five_tokens_is_within_what_was_measured():
    passes = [
        row["relative"]
        for row in saved("widths")["rows"] + saved("larger")["rows"]
        if row["tokens"] == 5 and row["model"].startswith(DEFAULT_PAIR)
    ]
    times = saved("rounds")["figures"]["widths"]["target"]["run_ms"]
    passes.append(times[4] / times[0])
    low, high = min(passes), max(passes)
    assert states(README, f"five tokens take {low:.1f} to {high:.1f} times as long as one")


def test_the_figures_of_other_engines_are_their_results():
    over = {}
    for row in saved("peers")["rows"]:
        if row["subject"] == DEFAULT_PAIR and not row["failed"]:
            over[row["engine"]] = row["over_fastest"]
            time = spread(row["low"], row["ms"], row["high"])
            same = f"{row['peak_mb']:.0f} | {100 * row['same']:.0f} %"
            assert states(RESULTS, f"| {time} | {row['over_fastest']:.2f} | {same} |"), row
    ours, llama, genai = (
        (over[name], min(ratio for engine, ratio in over.items() if engine.startswith(f"{name},")))
        for name in ("this project", "llama.cpp", "OpenVINO GenAI")
    )
    assert states(
        README,
        f"itself {ours[0]:.2f} times its fastest mode",
        f"takes {ours[1]:.2f} of the time per token",
        f"llama.cpp's takes {llama[1]:.2f}, OpenVINO GenAI's {genai[1]:.2f}",
    )
    for name, each in (("(exact)", ours), ("llama.cpp", llama), ("GenAI", genai)):
        assert states(RESULTS, f"{name} | {each[0]:.2f} | {each[1]:.2f} |")
    (bench,) = (r for r in saved("spec_bench")["rows"] if r["engine"] == "this project, hybrid")
    claim = f"hybrid with `auto` reaches {bench['all']:.2f}×"
    assert states(RESULTS, claim, f"autoregression it is {bench['own']:.2f}×")


def test_what_studies_measured_is_in_the_results():
    for row in saved("memory")["rows"]:
        if row["speedup"]:
            low, high = row["speedup_low"], row["speedup_high"]
            assert states(RESULTS, f"{row['speedup']:.2f}× [{low:.2f}, {high:.2f}]")
    for row in saved("cost")["rows"]:
        time = spread(row["ms_low"], row["ms"], row["ms_high"])
        assert states(RESULTS, f"| {time} | {row['cpu_ms']:.2f} | {row['weights_mb']:.1f} |")
    for row in saved("lengths")["rows"]:
        if row["length"] == "auto":
            assert states(RESULTS, f"{row['ms']:.2f} |", f"{row['speedup']:.2f} |")
    for row in saved("released")["rows"]:
        if row["drafts"] != "none":
            drafts = row["drafts"].replace("auto", "`auto`")
            speedups = " | ".join(f"{row[name]:.2f}×" for name in ("x40", "x100", "code"))
            figures = f"{100 * row['accepted']:.0f} % | {row['yield']:.2f} | {speedups}"
            assert states(RESULTS, f"| {drafts} | {figures} |")
    best = max(row["x100"] for row in saved("released")["rows"] if row["drafts"].isdigit())
    assert states(README, f"{best:.2f}× with Qwen2.5-Coder 1.5B and 0.5B, prompt included")
    for name in ("ratio", "larger"):
        assert states(RESULTS, *re.findall(r"\d+\.\d\d(?=×| \()", saved(name)["sentence"]))


def test_as_many_visitors_as_are_promised_wait_no_longer_than_they_have_patience():
    """By simulation of measured races; nothing is projected from random weights."""
    result = saved("simulation")
    (claimed,) = re.findall(r"up to (\d+) visitors a minute", body(HOSTING))
    (row,) = (
        row
        for row in result["rows"]
        if (row["pair"], row["cores"], row["replicas"]) == (DEFAULT_PAIR, 2, 1)
        and row["visitors_per_minute"] == int(claimed)
    )
    assert row["simulated"]["p95"] <= result["patience_s"]
