"""The race in a terminal: what it prints, what it writes, and how it says what is wrong."""

import pytest

from pipeline.__main__ import main
from pipeline.dolly import Dolly
from pipeline.models.choice import LISTING_NOTE
from pipeline.models.pairs import DEFAULT_PAIR, PAIRS
from pipeline.trace.cost import figures
from pipeline.trace.metrics import more_cpu
from pipeline.trace.reader import parse_trace
from tests.tiny import tiny


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    """Spares loading the embedded pair, with which `.ci/run` has the command race."""
    load = Dolly.of
    monkeypatch.setattr(
        Dolly, "of", lambda choice: tiny() if choice.device == "CPU" else load(choice)
    )


def test_a_race_prints_both_answers_and_writes_its_trace(tmp_path, capsys):
    file = tmp_path / "trace.json"
    command = ["Why is the sky blue?", "--mode", "race", "--json", str(file)]
    assert main([*command, "--max-new-tokens", "20", "--draft-length", "3"]) == 0
    trace = parse_trace(file.read_text())
    printed = capsys.readouterr().out
    for name, lane in trace.lanes.items():
        cost = trace.costs[name]
        assert lane.text.strip() in printed
        assert f"; per token {figures([cost])}\n" in printed
        assert f"{cost.joules:.3g} J (" in printed
    assert ("speculation costs more" in printed) == bool(more_cpu(trace))
    assert "identical text" in printed
    assert "lossy" not in printed
    assert f"{trace.speedup:.2f}×" in printed
    assert trace.request["draft_length"] == 3
    assert trace.request["drafter"] == PAIRS[DEFAULT_PAIR].settings["drafter"]  # left out


@pytest.mark.parametrize("mode", ["autoregressive", "speculative"])
def test_one_mode_runs_one_lane(mode, tmp_path, capsys):
    file = tmp_path / "trace.json"
    assert main(["Why?", "--mode", mode, "--max-new-tokens", "1", "--json", str(file)]) == 0
    assert list(parse_trace(file.read_text()).lanes) == [mode]
    printed = capsys.readouterr().out
    assert "speedup" not in printed
    assert printed.count("  1 token, prefill") == 1


def test_a_drafter_that_finds_nothing_to_propose_is_not_silent(capsys):
    command = ["Why is the sky blue?", "--drafter", "lookup", "--draft-length", "auto"]
    assert main([*command, "--max-new-tokens", "8"]) == 0
    assert "nothing drafted in " in capsys.readouterr().out


def test_a_lossy_verification_is_called_lossy_and_no_text_identical(capsys):
    assert main(["Why?", "--verification", "typical", "--max-new-tokens", "8"]) == 0
    printed = capsys.readouterr().out
    assert "lossy  typical acceptance" in printed
    assert "identical" not in printed


def test_the_pairs_are_listed_with_what_is_ready(capsys):
    assert main(["--list-pairs"]) == 0
    table, note = capsys.readouterr().out.split("\n\n")
    assert note.strip() == LISTING_NOTE
    listed = table.splitlines()
    assert len(listed) == 1 + len(PAIRS)
    assert next(line for line in listed if line.startswith(DEFAULT_PAIR)).split()[-1] == "ready"


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ([], "instruction"),
        (["Why?", "--mode", "both"], "--mode"),
        (["Why?", "--draft-length", "0"], "draft length: 0"),
        (["Why?", "--draft-length", "some"], "draft length: “some”"),
        (["  "], "instruction: "),
        (["\udc80"], "instruction: "),
        (["Why?", "--pair", "nobody"], "pair: “nobody”"),
        (["Why?", "--device", "TPU"], "device: “TPU” — choose CPU"),
        (["Why?", "--device", "AUTO"], "device: “AUTO” — choose CPU"),
        (["Why?", "--draft", "nobody"], "target: "),
        (["Why?", "--json", "/nowhere/at/all.json"], "json: "),
        (["Why?", "--json", "/"], "json: “/” — choose a file"),
        (["Why?", "--threads", str(10**20)], f"threads: {10**20} — choose 1 to 1,024"),
        (["word " * 3000], "prompt tokens: "),
        (["x" * 1_000_000], "1,000,000 characters"),
    ],
)
def test_what_the_user_can_mend_is_one_line_and_status_2(arguments, names, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert names in captured.err
    assert captured.err.count("\n") == 1
    assert len(captured.err) < 400
