"""What the card of dolly-smol claims is what was measured: definitions, choice, and a whole run."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch (requirements-dev.txt)")

from lab.training import bars, base, block, card, evaluate, target  # noqa: E402
from lab.training.block_ir import export_block  # noqa: E402
from lab.training.command import TIMES, Command, timed  # noqa: E402
from lab.training.corpus import Record  # noqa: E402
from lab.training.draft import Rows, make_draft  # noqa: E402
from lab.training.evaluate import Raced, Sizes, bits, bits_per_byte, choose  # noqa: E402
from lab.training.measurements import Measurements, Row, Series  # noqa: E402
from lab.training.recipe import RECIPE, Block  # noqa: E402
from pipeline.decoding.events import FinishReason  # noqa: E402
from pipeline.errors import UserError  # noqa: E402
from pipeline.models.export import export  # noqa: E402
from pipeline.runtime.model import OVModel  # noqa: E402
from pipeline.text.tokenizer import Tokenizer  # noqa: E402
from tests.archives import write  # noqa: E402
from tests.tiny_gguf import write_gguf  # noqa: E402
from tests.traces import MARKUP, STRANGE, ran  # noqa: E402

TINY = Sizes(
    records=3, open=2, context=1, reading=2, reading_context=1, answer_tokens=12, race_tokens=8
)
TINY_RECIPE = dataclasses.replace(RECIPE, base_sha256="", merged_tokens=260)
HELD_OUT = range(7, 15_000, 30)
CHOSEN = [11677, 8347, 3727, 2677]  # the first without a context, of RECORDS
RECORDS = {number: Record("Ask", "About" * (number % 90 == 7), "Answer") for number in HELD_OUT}


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """A work folder with an exported pair: a tiny target that is its own draft."""
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
    model = write_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")
    made = Command(work, data, model, recipe=TINY_RECIPE)
    base.main(made)
    (work / target.TARGET).symlink_to(work / base.BASE)
    for folder in ("pair/target", "pair/draft", "ir/target/f32"):
        if folder == "pair/target":
            export(work / base.BASE, work / folder, "f32")
        else:
            shutil.copytree(work / "pair" / "target", work / folder)
    teacher = target.load_model(work / base.BASE)
    ids = [*range(teacher.config.vocab_size)]
    drafting = block.BlockDraft(make_draft(teacher, 1, ids), teacher.config.hidden_size, Block())
    rows = Rows(ids, np.arange(len(ids)), 0)
    block.save_block(drafting, rows, (0,), work / base.BASE, work / "block")
    export_block(work / "block", work / "pair" / "block", "int8")
    return made


@pytest.fixture(scope="module")
def figures(command: Command) -> dict[str, Any]:
    """Of all parts, measured once."""
    return evaluate.evaluate(command, sizes=TINY)


@pytest.fixture
def measured(command: Command, figures: dict[str, Any], tmp_path: Path) -> Command:
    """A work folder of its own, with the pair and what was measured of it."""
    for name in ("pair", "ir", "base"):
        shutil.copytree(command.work / name, tmp_path / name, copy_function=shutil.copy)
    for name in (evaluate.KEPT, evaluate.EVALUATION, evaluate.READING):
        shutil.copy(command.work / name, tmp_path / name)
    return dataclasses.replace(command, work=tmp_path)


def mark(work: Path, *marks: str | None) -> None:
    path = work / evaluate.READING
    rows = json.loads(path.read_text())
    assert len(rows) == len(marks)
    path.write_text(json.dumps([row | {"mark": m} for row, m in zip(rows, marks, strict=True)]))


# --- definitions ----------------------------------------------------------------------------------


def test_bits_are_of_the_tokens_under_the_logits() -> None:
    logits = np.log(np.array([[0.5, 0.25, 0.25], [0.125, 0.5, 0.375]], np.float32)) + 7
    assert bits(logits, [1, 0]) == pytest.approx([2, 3], abs=1e-5)


def test_bits_per_byte_weigh_records_by_their_length() -> None:
    rows = [
        {"bits": 6.0, "end_bits": 1.0, "bytes": 4},
        {"bits": 10.0, "end_bits": 3.0, "bytes": 16},
    ]
    assert bits_per_byte(rows) == 16 / 20
    assert bits_per_byte(rows, end=True) == 20 / 20


def test_a_response_s_bits_are_the_model_s_and_its_bytes_utf_8(command: Command) -> None:
    """Against one forward pass over the whole response, by hand."""
    record = Record("Say it.", "", "“Naïve” 🦊, " * 3 + "a longer text than one piece holds.")
    part = evaluate.language(command, {7: record})
    row = part.series["shipped"].measure(7)
    folder = command.work / "pair" / "target"
    tokenizer = Tokenizer(folder)
    prompt, response = tokenizer.ask("Say it."), tokenizer.encode(record.response)
    assert len(response) > 64
    sequence = OVModel(folder).sequence()
    sequence.forward(prompt[:-1], logits_to_keep=0)
    tokens = tokenizer.encode(f"{record.response}\n\n### End")
    logits = sequence.forward([prompt[-1], *tokens[:-1]], len(tokens)).logits
    by_hand = [
        -math.log2(np.exp(scores[token]) / np.exp(scores).sum())
        for scores, token in zip(logits.astype(float), tokens, strict=True)
    ]
    assert row["bits"] == pytest.approx(sum(by_hand[: len(response)]), rel=1e-4)
    assert row["end_bits"] == pytest.approx(sum(by_hand[len(response) :]), rel=1e-4)
    assert row["bytes"] == len(record.response.encode()) > len(record.response)
    assert row["tokens"] == len(response)


def test_the_choice_of_records_is_stable_and_held_out() -> None:
    without, within = choose(RECORDS, 40, context=False), choose(RECORDS, 20, context=True)
    assert without[:4] == CHOSEN
    assert choose(dict(reversed(RECORDS.items())), 100, context=False)[:40] == without
    assert len({*without, *within}) == 60
    assert all(number % 30 == 7 for number in (*without, *within))
    assert {bool(RECORDS[number].context) for number in without} == {False}
    assert {bool(RECORDS[number].context) for number in within} == {True}


def raced(**changed: Any) -> Raced:
    """Ten tokens; speculatively nine, with three runs, at 1.8 times the speed."""
    race = Raced(
        text="A hen.",
        tokens=[1, 2, 3],
        ended=True,
        autoregressive_tokens=10,
        speculative_tokens=9,
        speedup=1.8,
        target_runs=3,
        tested=8,
        accepted=6,
        identical=True,
        certainty=0.8,
        machine="a machine",
    )
    return dataclasses.replace(race, **changed)


def test_a_race_is_its_trace_in_counts_and_seconds() -> None:
    """Of which the end key, and the blanks before it, are no part of the answer."""
    trace = ran(max_new_tokens=6)
    slow = trace.lanes["autoregressive"]
    texts = ("", " A", "\n", " hen", "\n\n", "")
    tokens = tuple(
        dataclasses.replace(token, text=text)
        for token, text in zip(slow.tokens, texts, strict=True)
    )
    lane = dataclasses.replace(slow, tokens=tokens, finish=FinishReason.STOP)
    trace = dataclasses.replace(trace, lanes={**trace.lanes, "autoregressive": lane})
    race = Raced.of(trace, "a machine")
    assert race.tokens == [token.id for token in tokens[:4]]
    assert (race.ended, race.autoregressive_tokens) == (True, 6)
    assert race.speedup is trace.speedup is None  # of so few tokens


def test_races_are_summed_before_they_are_divided() -> None:
    races = [raced(), raced(tested=2, accepted=1, target_runs=6, identical=False)]
    summary = evaluate.race_summary(races)
    assert summary["acceptance"] == 7 / 10
    assert summary["tokens_per_run"] == 18 / 9
    assert summary["identical"] == 1
    short = evaluate.race_summary([raced(), raced(speedup=0.5), raced(speedup=None)])
    assert (short["races"], short["speedup"][1], short["slower"]) == (3, (1.8 + 0.5) / 2, 1)
    assert evaluate.race_summary([raced(speedup=None)])["speedup"] is None
    sampled = evaluate.race_summary([raced(identical=None, tested=0, accepted=0)])
    assert sampled["identical"] is None
    assert sampled["acceptance"] is None


def test_answers_are_counted_by_how_they_end() -> None:
    races = [raced(), raced(ended=False, tokens=[5] * 9), raced(tokens=[5] * 9)]
    summary = evaluate.answer_summary(races, reference_loops=1)
    assert (summary["ends"], summary["loops"]) == (2, 2)


# --- what is kept ---------------------------------------------------------------------------------


def counted(asked: list[int], depends_on: str = "weights", stop: int = 0) -> Series:
    """Measures a record's square; interrupted at the record `stop`."""

    def measure(number: int) -> Row:
        if number == stop:
            raise KeyboardInterrupt
        asked.append(number)
        return {"square": number**2}

    return Series("squares", depends_on, [3, 4, 5], measure)


def test_an_interrupted_series_continues(tmp_path: Path) -> None:
    asked: list[int] = []
    kept = Measurements(tmp_path / "kept")
    with pytest.raises(KeyboardInterrupt):
        kept.complete(counted(asked, stop=5))
    with (tmp_path / "kept").open("a") as lines:
        lines.write('["half a li')
    again = Measurements(tmp_path / "kept")
    assert again.rows(counted(asked)) is None
    again.complete(counted(asked))
    assert asked == [3, 4, 5]
    assert Measurements(tmp_path / "kept").rows(counted(asked)) == [
        {"square": 9},
        {"square": 16},
        {"square": 25},
    ]


def test_what_depends_on_something_else_is_measured_anew(tmp_path: Path) -> None:
    asked: list[int] = []
    kept = Measurements(tmp_path / "kept")
    kept.complete(counted(asked))
    assert kept.rows(counted(asked, "other weights")) is None


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    kept = Measurements(tmp_path / "kept")
    kept.complete(counted([]))
    text = (tmp_path / "kept").read_text().replace('"square": 16}', '"squ')
    (tmp_path / "kept").write_text(text)
    with pytest.raises(UserError, match="line 2"):
        Measurements(tmp_path / "kept")


def test_the_time_of_an_interrupted_stage_counts(tmp_path: Path) -> None:
    work = tmp_path / "work"
    with pytest.raises(KeyboardInterrupt), timed(work, "export"):
        raise KeyboardInterrupt
    with timed(work, "export"):
        pass
    assert (work / TIMES).read_text().splitlines() == ["stage,seconds", "export,0", "export,0"]


# --- a whole run ----------------------------------------------------------------------------------


def test_every_part_is_measured(command: Command, figures: dict[str, Any]) -> None:
    assert json.loads((command.work / evaluate.EVALUATION).read_text()) == figures
    assert set(evaluate.PARTS) < set(figures)
    models = figures["language"]["bits_per_byte"]
    assert models["shipped"] == models["float32"] > 1
    answers = figures["answers"]
    assert answers["identical"] == answers["races"] == 3
    assert figures["open"]["draft model, greedy, K = 4"]["acceptance"] == 1  # it is the target
    assert figures["context"]["hybrid, K = 4"]["races"] == 1
    assert figures["open"]["sampled, K = auto"]["races"] == 2
    read = json.loads((command.work / evaluate.READING).read_text())
    assert [bool(row["context"]) for row in read] == [False, False, True]
    assert [row["mark"] for row in read] == [None] * 3


def test_nothing_is_measured_twice(measured: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = json.loads((measured.work / evaluate.EVALUATION).read_text())

    def refused(folder: Path) -> None:
        raise AssertionError(folder)

    monkeypatch.setattr(evaluate, "Dolly", refused)
    monkeypatch.setattr(evaluate, "OVModel", refused)
    assert evaluate.evaluate(measured, sizes=TINY) == figures


def test_another_draft_s_figures_are_left_out(measured: Command) -> None:
    with (measured.work / "pair" / "draft" / "config.json").open("a") as config:
        config.write("\n")
    figures = evaluate.evaluate(measured, only="language", sizes=TINY)
    assert set(figures) & set(evaluate.PARTS) == {"language"}


def test_marks_stay_with_answers_that_are_still_the_same(measured: Command) -> None:
    mark(measured.work, "right", "fact", "off")
    path = measured.work / evaluate.READING
    rows = json.loads(path.read_text())
    rows[1]["answer"] = "Another one."
    path.write_text(json.dumps(rows))
    evaluate.evaluate(measured, only="reading", sizes=TINY)
    assert [row["mark"] for row in json.loads(path.read_text())] == ["right", None, "off"]


def test_without_an_export_the_stage_to_run_is_named(command: Command, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="model"):
        evaluate.evaluate(dataclasses.replace(command, work=tmp_path), sizes=TINY)


# --- the card -------------------------------------------------------------------------------------


def test_the_card_shows_every_figure_beside_its_bar(measured: Command) -> None:
    mark(measured.work, "right", "right", "fact")
    (measured.work / "losses.csv").write_text(
        "phase,step,tokens,seconds,loss\ntarget,20,900,60,2.5\ntarget,40,1800,240,2.25\n"
    )
    (measured.work / TIMES).write_text("stage,seconds\nexport,70\nexport,50\ntarget,9999\n")
    (measured.work / card.MISSED).write_text("It is tiny.")
    card.main(measured)
    text = (measured.work / "pair" / "README.md").read_text()
    assert text.startswith("---\n")
    figures = json.loads((measured.work / evaluate.EVALUATION).read_text())
    certainty = figures["answers"]["certainty"]
    assert 0 < certainty < 0.78
    assert f"| {certainty:.2f} | ≥ 0.78 | **no, by {0.78 - certainty:.2f}** |" in text
    assert "| greedy texts identical | 100.0% | ≥ 100.0% | yes | 3 of 3 |" in text
    assert "| answers read: to the point | 100% | ≥ 90% | yes |" in text
    assert "| export | 2 min |" in text
    assert "| target | 4 min |" in text
    assert "It is tiny." in text
    assert "CC BY-SA 4.0" in text
    assert text.count(". Record ") == 3
    prose = [line for line in text.splitlines() if not line.startswith("|")]
    assert [line for line in prose if len(line) > 100] == []


@pytest.mark.parametrize(
    ("marks", "told"),
    [
        (("right", None, None), "2 of 3.*reading.json.*right, fact, off, garbled"),
        (("right", "rihgt", "off"), "rihgt.*right, fact, off, garbled"),
    ],
)
def test_a_missing_or_unknown_mark_is_refused(
    marks: tuple[str | None, ...], told: str, measured: Command
) -> None:
    mark(measured.work, *marks)
    with pytest.raises(UserError, match=told) as caught:
        card.main(measured)
    assert "\n" not in str(caught.value)
    assert not (measured.work / "pair" / "README.md").exists()


def test_marks_of_another_pair_s_answers_are_refused(measured: Command) -> None:
    mark(measured.work, "right", "right", "fact")
    path = measured.work / evaluate.READING
    path.write_text(path.read_text().replace('"answer": "', '"answer": "No. '))
    with pytest.raises(UserError, match="3 of 3"):
        card.main(measured)


def test_a_part_that_was_not_measured_is_refused(measured: Command) -> None:
    path = measured.work / evaluate.EVALUATION
    figures = json.loads(path.read_text())
    del figures["open"]
    path.write_text(json.dumps(figures))
    with pytest.raises(UserError, match=r"open.*evaluate"):
        card.main(measured)


@pytest.mark.parametrize("name", [evaluate.READING, evaluate.EVALUATION])
def test_a_damaged_file_is_one_clear_line(name: str, measured: Command) -> None:
    (measured.work / name).write_text('[{"id": 7')
    with pytest.raises(UserError, match=name):
        card.main(measured)


def test_a_model_s_text_is_never_markup(measured: Command) -> None:
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
    start = lines.index("## Held-out answers, not picked")
    end = lines.index("## Licence and attribution")
    for before, line in zip(lines[start:end], lines[start + 1 : end], strict=False):
        ours = line.startswith(("**", "| ", "|-")) or not line
        assert ours or line.startswith("    ") or " seed; greedy answers" in line + before
        # A block of code begins after a blank line only.
        assert not line.startswith("    ") or not before or before.startswith("    ")
    text = "\n".join(lines)
    assert "\u202e" not in text
    assert "\r" not in text
    shown = [line for line in lines if any(mark in line for mark in MARKUP if mark.strip())]
    assert shown
    assert all(line.startswith("    ") for line in shown)


def test_text_is_shown_as_it_is() -> None:
    assert card.literal("* a\n\n\tb\u202e  c") == "    * a\n\n        b\\u202e  c"
    wrapped = card.literal("word " * 40).splitlines()
    assert len(wrapped) > 1
    assert " ".join(line.strip() for line in wrapped) == " ".join(["word"] * 40)


# --- the bars -------------------------------------------------------------------------------------


def test_a_bar_is_a_least_or_a_most() -> None:
    least = bars.Bar("speedup", 1.5, 1.6, True, "{:.2f}")
    assert (least.reached, least.missed_by) == (False, "0.10")
    assert dataclasses.replace(least, measured=1.6).reached
    most = bars.Bar("loops", 0.05, 0.03, False, "{:.0%}")
    assert (most.reached, most.missed_by) == (False, "2 points")
    assert dataclasses.replace(most, measured=0.03).reached


def test_a_setting_of_which_something_was_asked_has_its_bar() -> None:
    """Both drafts at their best K, and the races as the page begins."""
    races = evaluate.race_summary([raced()])
    slow = races | {"speedup": [1.0, 1.1, 1.2], "tokens_per_run": 1.0, "slower": 1}
    figures = {
        "bytes": {"target": 95_000_001, "draft": 1},
        "open": {
            "greedy, K = 4": slow,
            "greedy, K = 8": races,
            "sampled, K = 4": races,
            "sampled, K = auto": races,
            "draft model, greedy, K = 2": races,
            "draft model, greedy, K = 4": slow,
            "hybrid, greedy, K = auto": slow,
        },
        "context": {"hybrid, K = 4": races, "hybrid, K = auto": races},
    }
    found = {bar.name: (bar.bar, bar.reached) for bar in bars.bars(figures)}
    assert found == {
        "median speedup, without a context, sampled, K = auto": (1.5, True),
        "median speedup, without a context, hybrid, greedy, K = auto": (1.9, False),
        "median speedup, with a context, hybrid, K = auto": (2.3, False),
        "tokens a target pass, without a context, greedy, K = 8": (2.5, True),
        "median speedup, without a context, draft model, greedy, K = 2": (1.3, True),
        "races slower, without a context, hybrid, greedy, K = auto": (
            0.02,
            False,
        ),
        "largest file, MB": (95, False),
    }
    too_short = evaluate.race_summary([raced(speedup=None)])
    figures |= {"open": {"sampled, K = auto": too_short}, "context": {}}
    assert [bar.bar for bar in bars.bars(figures)] == [95]  # nothing is claimed of its speed
