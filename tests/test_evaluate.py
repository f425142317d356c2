"""What a model card claims is what was measured: definitions, choice, and a whole run."""

import json
import math
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs torch (requirements-dev.txt)")

from lab.corpus import Record
from lab.training import bars, card, evaluate
from lab.training.command import TIMES, Command
from lab.training.evaluate import Kept, Sizes, bits_per_byte, choose, raced
from lab.training.files import add_line
from lab.training.fit import LOSSES
from pipeline.decoding.events import FinishReason
from pipeline.errors import UserError
from pipeline.runtime.model import OVModel, RuntimeOptions
from pipeline.text.tokenizer import Tokenizer
from tests.archives import write
from tests.tiny import tiny_folder
from tests.traces import MARKUP, STRANGE, ran

TINY = Sizes(3, open=2, context=1, reading=2, reading_context=1, answer_tokens=12, race_tokens=8)
HELD_OUT = range(7, 15_000, 30)
CHOSEN = [11677, 8347, 3727, 2677]  # the first without a context, of RECORDS
RECORDS = {number: Record("Ask", "About" * (number % 90 == 7), "Answer") for number in HELD_OUT}


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """A work folder with an exported pair."""
    data, work = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("work")
    rows = [
        {
            "id": number,
            "instruction": f"Name {number} birds.",
            "context": "A hen is a bird." * (number % 60 == 37),
            "response": f"A naïve hen, and {number} more.",
        }
        for number in range(200)
    ]
    write(data / "dolly15k.jsonl.xz", rows)
    shutil.copytree(tiny_folder(), work / "pair")
    shutil.copytree(tiny_folder() / "target", work / "ir" / "tuned" / "f32")
    return Command(work, data)


@pytest.fixture(scope="module")
def figures(command):
    """All of them, measured once."""
    return evaluate.evaluate(command, TINY)


@pytest.fixture
def measured(command, figures, tmp_path):
    """A work folder of its own, with the pair and what was measured of it."""
    shutil.copytree(command.work, tmp_path / "work", copy_function=shutil.copy)
    return replace(command, work=tmp_path / "work")


def mark(work, *marks):
    path = work / evaluate.READING
    rows = json.loads(path.read_text())
    path.write_text(json.dumps([row | {"mark": m} for row, m in zip(rows, marks, strict=True)]))


def test_bits_per_byte_weigh_records_by_their_length():
    assert bits_per_byte([{"bits": 6, "bytes": 4}, {"bits": 10, "bytes": 16}]) == 16 / 20


def test_a_responses_bits_are_the_models_and_its_bytes_utf_8(command):
    """Against one forward pass over the whole response, by hand."""
    folder, said = command.work / "pair" / "target", "“Naïve” 🦊, " * 3 + "a longer text."
    # In f16, keys and values of passes of different sizes would differ by their rounding.
    model, tokenizer = OVModel(folder, RuntimeOptions(kv_precision="f32")), Tokenizer(folder)
    prompt, tokens = tokenizer.ask("Say it."), tokenizer.encode(said)
    row = evaluate.response_bits(model, tokenizer, prompt, said)
    logits = model.sequence().forward([*prompt, *tokens[:-1]], len(tokens)).logits
    by_hand = [
        -math.log2(np.exp(scores[token]) / np.exp(scores).sum())
        for scores, token in zip(logits.astype(float), tokens, strict=True)
    ]
    assert row["bits"] == pytest.approx(sum(by_hand), rel=1e-4)
    assert row["bytes"] == len(said.encode()) > len(said)
    assert row["tokens"] == len(tokens)


def test_the_choice_of_records_is_stable_and_held_out():
    without, within = choose(RECORDS, 40, context=False), choose(RECORDS, 20, context=True)
    assert without[:4] == CHOSEN
    assert choose(dict(reversed(RECORDS.items())), 100, context=False)[:40] == without
    assert len({*without, *within}) == 60
    assert all(number % 30 == 7 for number in (*without, *within))
    assert {bool(RECORDS[number].context) for number in without} == {False}
    assert {bool(RECORDS[number].context) for number in within} == {True}


def race(**changed):
    """Ten tokens; speculatively nine, with three runs, at 1.8 times the speed."""
    race = {"text": "A hen.", "tokens": [1, 2, 3], "ended": True, "speedup": 1.8}
    race |= {"autoregressive_tokens": 10, "speculative_tokens": 9, "target_runs": 3, "tested": 8}
    race |= {"accepted": 6, "identical": True, "certainty": 0.8, "machine": "a machine"}
    return race | changed


def test_a_race_is_its_trace_in_counts_and_seconds():
    """Of which the end key, and the blanks before it, are no part of the answer."""
    trace = ran(max_new_tokens=6)
    slow = trace.lanes["autoregressive"]
    texts = ("", " A", "\n", " hen", "\n\n", "")
    tokens = tuple(replace(one, text=text) for one, text in zip(slow.tokens, texts, strict=True))
    lane = replace(slow, tokens=tokens, finish=FinishReason.STOP)
    found = raced(replace(trace, lanes={**trace.lanes, "autoregressive": lane}))
    assert found["tokens"] == [token.id for token in tokens[:4]]
    assert (found["ended"], found["autoregressive_tokens"]) == (True, 6)
    assert found["speedup"] is None  # of so few tokens


def test_races_are_summed_before_they_are_divided():
    races = [race(), race(tested=2, accepted=1, target_runs=6, identical=False)]
    summary = evaluate.race_summary(races)
    assert summary["acceptance"] == 7 / 10
    assert summary["tokens_per_run"] == 18 / 9
    assert summary["identical"] == 1
    short = evaluate.race_summary([race(), race(speedup=0.5), race(speedup=None)])
    assert (short["races"], short["speedup"][1], short["slower"]) == (3, (1.8 + 0.5) / 2, 1)
    none = evaluate.race_summary([race(speedup=None, identical=None, tested=0, accepted=0)])
    assert (none["speedup"], none["identical"], none["acceptance"]) == (None, None, None)
    races = [race(), race(ended=False, tokens=[5] * 9), race(tokens=[5] * 9)]
    ended = evaluate.answer_summary(races, reference_loops=1)
    assert (ended["ends"], ended["loops"]) == (2, 2)


def test_what_was_measured_is_kept_for_the_same_weights_and_settings(tmp_path):
    """Each record once, also after an interruption that cut a line short."""
    asked = []

    def measure(number, stop=0):
        if number == stop:
            raise KeyboardInterrupt
        asked.append(number)
        return {"square": number**2}

    path, ids = tmp_path / "kept", [3, 4, 5]
    with pytest.raises(KeyboardInterrupt):
        Kept(path).rows("squares", "weights", ids, partial(measure, stop=5))
    with path.open("a") as lines:
        lines.write('["half a li')
    rows = Kept(path).rows("squares", "weights", ids, measure)
    assert rows == [{"square": 9}, {"square": 16}, {"square": 25}]
    assert asked == [3, 4, 5]
    Kept(path).rows("squares", "other weights", [3], measure)
    assert asked == [3, 4, 5, 3]
    path.write_text(path.read_text().replace('"square": 16}', '"squ'))
    with pytest.raises(UserError, match="line 2"):
        Kept(path)


def test_everything_is_measured_once(measured, figures, monkeypatch):
    models = figures["language"]["bits_per_byte"]
    assert models["shipped"] == models["float32"] > 1
    answers = figures["answers"]
    assert answers["identical"] == answers["races"] == 3
    assert 0 < figures["open"]["draft model, greedy, K = 4"]["acceptance"] < 1
    assert figures["context"]["hybrid, K = 4"]["races"] == 1
    assert figures["open"]["sampled, K = auto"]["races"] == 2
    read = json.loads((measured.work / evaluate.READING).read_text())
    assert [bool(row["context"]) for row in read] == [False, False, True]
    assert [row["mark"] for row in read] == [None] * 3
    assert json.loads((measured.work / evaluate.EVALUATION).read_text()) == figures

    for name in ("Dolly", "OVModel"):  # not loaded again
        monkeypatch.setattr(evaluate, name, lambda folder: pytest.fail(str(folder)))
    mark(measured.work, "right", "fact", "off")
    path = measured.work / evaluate.READING
    rows = json.loads(path.read_text())
    rows[1]["answer"] = "Another one."  # whose mark is not kept
    path.write_text(json.dumps(rows))
    assert evaluate.evaluate(measured, TINY) == figures
    assert [row["mark"] for row in json.loads(path.read_text())] == ["right", None, "off"]


def test_without_an_export_the_stage_to_run_is_named(command, tmp_path):
    with pytest.raises(UserError, match="training export first"):
        evaluate.evaluate(replace(command, work=tmp_path), TINY)


def test_the_card_shows_every_figure_beside_its_bar(measured):
    mark(measured.work, "right", "right", "fact")
    losses = [("target", 20, 900, 60, 2.5), ("target", 40, 1800, 240, 2.25)]
    for loss in losses:
        names = ("phase", "step", "tokens", "seconds", "loss")
        add_line(measured.work / LOSSES, dict(zip(names, loss, strict=True)))
    for stage, seconds in (("export", 70), ("export", 50), ("target", 9999)):
        add_line(measured.work / TIMES, {"stage": stage, "seconds": seconds})
    (measured.work / card.MISSED).write_text("It is tiny.")
    card.main(measured)
    text = (measured.work / "pair" / "README.md").read_text()
    assert text.startswith("---\n")
    figures = json.loads((measured.work / evaluate.EVALUATION).read_text())
    certainty = figures["answers"]["certainty"]
    assert 0 < certainty < 0.78
    for line in (
        f"| {certainty:.2f} | ≥ 0.78 | **no, by {0.78 - certainty:.2f}** |",
        "| greedy texts identical | 100.0% | ≥ 100.0% | yes | 3 of 3 |",
        "| answers read: to the point | 100% | ≥ 90% | yes |",
        "| export | 2 min |",
        "| target | 4 min |",
        "; 40 steps, 1,800 positions, loss 2.50 → 2.25 |",
        "| to the point, wrong in a fact | 1 | 33% |",
        "It is tiny.",
        "CC BY-SA 4.0",
    ):
        assert line in text
    assert text.count(". Record ") == 3
    prose = [line for line in text.splitlines() if not line.startswith("|")]
    assert [line for line in prose if len(line) > 100] == []


@pytest.mark.parametrize(
    ("marks", "error"),
    [
        (("right", None, None), "2 of 3.*reading.json.*right, fact, off, garbled"),
        (("right", "rihgt", "off"), "rihgt.*right, fact, off, garbled"),
        (("of", "another", "answer"), "3 of 3"),
    ],
)
def test_a_missing_or_unknown_mark_is_refused(marks, error, measured):
    mark(measured.work, *marks)
    path = measured.work / evaluate.READING
    if "another" in marks:
        path.write_text(path.read_text().replace('"answer": "', '"answer": "No. '))
    with pytest.raises(UserError, match=error) as caught:
        card.main(measured)
    assert "\n" not in str(caught.value)
    assert not (measured.work / "pair" / "README.md").exists()


@pytest.mark.parametrize("name", [evaluate.READING, evaluate.EVALUATION])
def test_a_damaged_file_is_one_clear_line(name, measured):
    (measured.work / name).write_text('[{"id": 7')
    with pytest.raises(UserError, match=name):
        card.main(measured)


def test_a_models_text_is_never_markup(measured):
    strange = "\n\n".join(["# A heading", "---", "```", "[a](b)", "| a |", "\rend", *STRANGE])
    path = measured.work / evaluate.EVALUATION
    figures = json.loads(path.read_text())
    for row in figures["reading"]:
        row.update(instruction=strange, context=strange, answer=strange)
    path.write_text(json.dumps(figures))
    (measured.work / evaluate.READING).write_text(json.dumps(figures["reading"]))
    mark(measured.work, "right", "right", "fact")
    card.main(measured)
    lines = (measured.work / "pair" / "README.md").read_text().split("\n")
    start = next(place for place, line in enumerate(lines) if line.startswith("**1. "))
    end = lines.index("## Licence and attribution")
    for before, line in zip(lines[start:end], lines[start + 1 : end], strict=False):
        assert line.startswith(("**", "    ")) or not line
        # A block of code begins after a blank line only.
        assert not line.startswith("    ") or not before or before.startswith("    ")
    assert not {"\u202e", "\r"} & {*"\n".join(lines)}
    shown = [line for line in lines if any(mark in line for mark in MARKUP if mark.strip())]
    assert shown
    assert all(line.startswith("    ") for line in shown)


def test_text_is_shown_as_it_is():
    assert card.literal("* a\n\n\tb\u202e  c") == "    * a\n\n        b\\u202e  c"
    wrapped = card.literal("word " * 40).splitlines()
    assert len(wrapped) > 1
    assert " ".join(line.strip() for line in wrapped) == " ".join(["word"] * 40)


def test_a_bar_is_a_least_or_a_most():
    least = bars.Bar("speedup", 1.5, 1.6, True, "{:.2f}")
    assert (least.reached, least.missed_by) == (False, "0.10")
    most = bars.Bar("loops", 0.05, 0.03, False, "{:.0%}")
    assert (most.reached, most.missed_by) == (False, "2 points")
    for bar in (least, most):
        assert replace(bar, measured=bar.bar).reached


def test_a_setting_of_which_something_was_asked_has_its_bar(figures):
    """Both drafts at their best K, and the races as the page begins."""
    races = evaluate.race_summary([race()])
    slow = races | {"speedup": [1.0, 1.1, 1.2], "tokens_per_run": 1.0, "slower": 1}
    fast = ("greedy, K = 8", "sampled, K = 4", "sampled, K = auto", "draft model, greedy, K = 2")
    slower = ("greedy, K = 4", "draft model, greedy, K = 4", "hybrid, greedy, K = auto")
    raced = {
        "bytes": {"target": 95_000_001, "draft": 1},
        "open": dict.fromkeys(fast, races) | dict.fromkeys(slower, slow),
        "context": {"hybrid, K = 4": races, "hybrid, K = auto": races},
    }
    found = {bar.name: (bar.bar, bar.reached) for bar in bars.bars(figures | raced)[6:]}
    assert found == {
        "median speedup, without a context, sampled, K = auto": (1.5, True),
        "median speedup, without a context, hybrid, greedy, K = auto": (1.9, False),
        "median speedup, with a context, hybrid, K = auto": (2.3, False),
        "tokens a target pass, without a context, greedy, K = 8": (2.5, True),
        "median speedup, without a context, draft model, greedy, K = 2": (1.3, True),
        "races slower, without a context, hybrid, greedy, K = auto": (0.02, False),
        "largest file, MB": (95, False),
    }
    short = evaluate.race_summary([race(speedup=None)])  # of which no speed is claimed
    raced |= {part: dict.fromkeys(raced[part], short) for part in ("open", "context")}
    assert not [bar for bar in bars.bars(figures | raced) if "speedup" in bar.name]
