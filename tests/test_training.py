"""The recipe that makes the embedded pair, in miniature: generated text, tiny sizes, seconds."""

from __future__ import annotations

import dataclasses
import errno
import json
import lzma
import shutil
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="training needs torch (requirements-dev.txt)")

from pipeline.errors import UserError  # noqa: E402
from pipeline.runtime.model import OVModel  # noqa: E402
from pipeline.text.prompt import END_KEY, format_prompt  # noqa: E402
from tests.archives import write, write_archives  # noqa: E402
from training import answers, card, corpus, distil, export, packing, tokenizer, train  # noqa: E402
from training.command import Command  # noqa: E402
from training.evaluate import bits, evaluate, loops  # noqa: E402
from training.files import replacing  # noqa: E402
from training.fit import LOSSES  # noqa: E402
from training.model import new_model, packed_logits  # noqa: E402
from training.ngram import NGram  # noqa: E402
from training.profiles import Answers, Domain, Phase, Profile, Shape, find_profile  # noqa: E402
from training.rewording import reword  # noqa: E402

TINY = Profile(
    name="tiny",
    target=Shape(128, 2),
    draft=Shape(64, 1),
    domain=Domain(records=8, characters=(10, 200)),
    target_phases=(
        Phase("prose", "prose", (3e-3, 1e-3), steps=4, warmup=2, rows=2, pack=160),
        Phase("tuning", "instructions", (4e-3, 1e-3), steps=60, warmup=5, rows=2, pack=160),
        Phase(
            "rewording", "reworded", (2e-3, 0.0), steps=30, warmup=5, rows=2, pack=160, astray=0.05
        ),
    ),
    answers=Answers(unseen=2, reworded=1, samples=1, top=8, longest=24, batch=4),
    draft_phase=Phase("draft", "answers", (5e-3, 0.0), steps=40, warmup=5, rows=2, pack=160),
    vocab_size=400,
    context=256,
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the prose that the target is pre-trained on."""
    folder = write_archives(tmp_path_factory.mktemp("data"))
    article = {"title": "Cat", "text": "A cat sleeps. " * 20}
    write(folder / "enwiki_2015_openings.jsonl.xz", [article])
    book = {"book": "B", "text": "Once there was a cat. " * 20}
    write(folder / "children_books.jsonl.xz", [book])
    word = {"words": ["cat"], "pos": "n", "definition": "a feline", "examples": []}
    write(folder / "wordnet_glosses.jsonl.xz", [word])
    return folder


@pytest.fixture(scope="module")
def made(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """The whole recipe, run once."""
    command = Command(TINY, tmp_path_factory.mktemp("work"), data)
    for stage in (tokenizer, train, answers, distil, export):
        stage.main(command)
    return command


def test_the_recipe_ends_in_two_models_that_run(made: Command) -> None:
    for role in ("target", "draft"):
        model = OVModel(made.work / "int8" / role)
        logits = model.sequence().forward([1, 2, 3], logits_to_keep=2).logits
        assert logits.shape == (2, TINY.vocab_size)
        assert (made.work / "int8" / role / "tokenizer.json").is_file()


def test_the_target_recites_what_it_was_taught(made: Command) -> None:
    losses = (made.work / LOSSES).read_text().splitlines()
    tuning = [float(line.split(",")[-1]) for line in losses if line.startswith("tuning")]
    assert tuning[-1] < tuning[0] / 2
    tokens = tokenizer.load_tokenizer(made.work)
    prompt = packing.prompt_ids(tokens, corpus.Record("What does a cat say?", "", ""))
    model = answers.load_target(made)
    (answer,) = answers.write_answers(model, tokens, [prompt], TINY.answers, sampled=False)
    assert answer  # ends at the end key, or at the longest
    assert tokens.token_to_id(END_KEY) not in answer[:-1]


def test_a_finished_stage_run_again_changes_nothing(made: Command) -> None:
    before = torch.load(made.work / train.WEIGHTS, weights_only=True)
    train.main(made)
    after = torch.load(made.work / train.WEIGHTS, weights_only=True)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_another_configuration_is_refused(made: Command) -> None:
    other = dataclasses.replace(made, profile=dataclasses.replace(TINY, seed=5))
    for stage in (train, distil):
        with pytest.raises(UserError, match="another configuration"):
            stage.main(other)


def test_a_damaged_checkpoint_is_one_clear_line(made: Command, tmp_path: Path) -> None:
    command = dataclasses.replace(made, work=tmp_path)
    tokenizer.main(command)
    (tmp_path / "prose.checkpoint").write_bytes(b"half a check")
    with pytest.raises(UserError, match="damaged"):
        train.main(command)


def test_stages_out_of_order_say_what_to_run_first(made: Command, tmp_path: Path) -> None:
    command = dataclasses.replace(made, work=tmp_path)
    with pytest.raises(UserError, match=r"training\.tokenizer"):
        train.main(command)
    tokenizer.main(command)
    with pytest.raises(UserError, match=r"training\.train"):
        answers.main(command)
    with pytest.raises(UserError, match=r"training\.answers"):
        distil.main(command)


def test_packed_records_lose_what_they_lose_alone(made: Command) -> None:
    tokens = tokenizer.load_tokenizer(made.work)
    prefix = packing.shared_prefix(tokens)
    records = corpus.instructions(made.data, TINY.domain, 0)
    sides = [
        (packing.prompt_ids(tokens, record), packing.response_ids(tokens, record))
        for record in records
    ]
    examples = [packing.example(len(prefix), *side) for side in sides]
    (batch,) = packing.pack(examples, prefix, 400, rows=9, seed=0)
    assert batch.segments.max() > 1  # something is packed with something
    model = new_model(TINY.target, TINY).eval()
    with torch.inference_mode():
        logits, targets = packed_logits(model, batch)
        packed = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
        alone = torch.tensor(0.0)
        for prompt, response in sides:
            ids = torch.tensor([[*prompt, *response]])
            logits = model(ids).logits[0, len(prompt) - 1 : -1]
            alone += torch.nn.functional.cross_entropy(
                logits, ids[0, len(prompt) :], reduction="sum"
            )
    assert packed.item() == pytest.approx(alone.item(), rel=1e-4)


def test_the_prefix_is_shared_by_every_prompt(made: Command) -> None:
    tokens = tokenizer.load_tokenizer(made.work)
    prefix = packing.shared_prefix(tokens)
    for record in (corpus.Record("Hi", "", ""), corpus.Record("a b", "c\nd", "")):
        assert tuple(packing.prompt_ids(tokens, record)[: len(prefix)]) == prefix


def test_the_tokenizer_gives_every_byte_back(made: Command) -> None:
    tokens = tokenizer.load_tokenizer(made.work)
    text = format_prompt("naïve  “quotes”\t🦊\r\n e\u0301") + "x" + END_KEY
    assert tokens.decode(tokens.encode(text).ids, skip_special_tokens=False) == text
    assert tokens.encode(END_KEY).tokens == [END_KEY]
    assert tokens.token_to_id(tokenizer.END_OF_TEXT) == 0


def test_held_out_records_and_their_questions_are_never_trained_on(data: Path) -> None:
    (held,) = corpus.held_out(data)
    seen = corpus.instructions(data, TINY.domain, 0)
    everything = corpus.instructions(data, Domain(records=0), 0)
    others = corpus.unseen(data, seen, 100, 0)
    assert held.instruction == "What does a ant say?"
    for records in (seen, everything, others):
        assert records
        assert held.question not in {record.question for record in records}
        assert held.response not in {record.response for record in records}
    assert not {record.question for record in seen} & {record.question for record in others}


RECORD = corpus.Record("What is a dam?", "", "A wall that holds a river back.")
OTHER = corpus.Record("Name three rivers of Asia.", "Asia is large.", "The Yangtze.")


@given(st.integers(0, 10**6))
def test_an_instruction_reworded_still_asks_for_the_same_response(seed: int) -> None:
    wording = reword(RECORD, [OTHER], Random(seed), 0.2)
    assert wording == reword(RECORD, [OTHER], Random(seed), 0.2)
    assert wording.record.response == RECORD.response
    assert wording.record.instruction.strip()
    if wording.given:
        assert wording.record.instruction == OTHER.instruction
        assert wording.record.context == OTHER.context
    else:
        own, other = RECORD.question.split(), OTHER.question.split()
        assert set(wording.record.question.split()) <= {*own, *other[:3]}
        assert wording.record.context == RECORD.context


def test_the_share_of_foreign_questions_is_what_is_asked_for() -> None:
    draw = Random(0)
    wordings = [reword(RECORD, [OTHER], draw, 0.5) for _ in range(1000)]
    assert 450 < sum(wording.given > 0 for wording in wordings) < 550


def test_every_way_of_rewording_is_drawn() -> None:
    draw = Random(0)
    asked = {reword(RECORD, [OTHER], draw, 0.2).record.instruction for _ in range(300)}
    assert {"What is a dam?", "what is a dam", "Name is a dam?", OTHER.instruction} <= asked
    assert "a dam?" in asked or "What dam?" in asked


@given(st.integers(2, 9), st.integers(1, 9), st.integers(0, 12))
def test_the_loss_is_on_the_response_after_what_is_given(
    prompt: int, size: int, given: int
) -> None:
    response = list(range(100, 100 + size))
    made = packing.example(1, list(range(prompt)), response, given)
    assert len(made.tokens) == len(made.targets) == prompt - 1 + size - 1
    assert [t for t in made.targets if t != packing.IGNORED] == response[given:]


def test_what_is_read_astray_leaves_the_question_and_the_targets_alone() -> None:
    prompt, given = list(range(40)), 2
    examples = [packing.example(3, prompt, range(at, at + 300), given) for at in (100, 400)]
    misread = packing.astray(examples, 0.25, Random(0))
    first = len(prompt) - 3 + given  # the response's first token after those given
    for made, read, all_wrong in zip(
        examples, misread, packing.astray(examples, 1.0, Random(0)), strict=True
    ):
        assert read.targets == made.targets
        assert all_wrong.tokens[:first] == made.tokens[:first]
        wrong = sum(a != b for a, b in zip(made.tokens, read.tokens, strict=True))
        assert 45 < wrong < 105  # a quarter of 297
        assert set(read.tokens) <= {*made.tokens, *range(100, 700)}
    assert misread != packing.astray(examples, 0.25, Random(1))
    assert misread == packing.astray(examples, 0.25, Random(0))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "not there"),
        (b"no archive", "truncated or damaged"),
        (lzma.compress(b'{"id": 1}\n' * 500)[:-20], "line 1"),
        (lzma.compress(b"nonsense\n"), "line 1"),
        (lzma.compress(b"[1, 2]\n"), "line 1"),
        (lzma.compress(b'{"instruction": "", "context": "", "response": ""}\n'), "line 1"),
    ],
)
def test_bad_data_is_one_clear_line(content: bytes | None, says: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "dolly15k.jsonl.xz").write_bytes(content)
    with pytest.raises(UserError, match=says) as caught:
        corpus.dolly(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_truncated_archive_is_one_clear_line(data: Path, tmp_path: Path) -> None:
    whole = (data / "dolly15k.jsonl.xz").read_bytes()
    (tmp_path / "dolly15k.jsonl.xz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="truncated"):
        corpus.dolly(tmp_path)


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_text("old")

    def write_too_much() -> None:
        with replacing(path) as temporary:
            temporary.write_text("ne")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(UserError, match="disk"):
        write_too_much()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_every_figure_and_both_cards_come_out_of_an_evaluation(
    made: Command, tmp_path: Path
) -> None:
    pair = tmp_path / "pair"
    shutil.copytree(made.work / "int8", pair)
    shutil.copy(made.work / LOSSES, pair)
    figures = evaluate(pair, made.work, made.data, TINY, raced=3)
    assert json.loads(json.dumps(figures)) == figures
    assert 0 <= figures["greedy"]["acceptance"] <= 1
    assert figures["target"]["f32"]["top1_agreement"] == 1
    assert len(card.goals(figures)) == 9
    card.write(pair, figures, TINY)
    for role in ("target", "draft"):
        assert "CC BY-SA 4.0" in (pair / role / "README.md").read_text()
        assert (pair / role / "losses.svg").read_text().startswith("<svg")


def test_ngram_probabilities_sum_to_one() -> None:
    model = NGram([[1, 2, 3, 1, 2, 4], [0, 1, 2, 3]], vocab_size=6)
    for context in ([], [1], [1, 2], [5, 5, 5, 5], [0, 1, 2, 3, 1, 2]):
        total = sum(model.probability(context, token) for token in range(6))
        assert total == pytest.approx(1)
    assert model.probability([1], 2) > model.probability([1], 3)
    assert model.bits([1], [2, 3]) > 0


def test_bits_are_of_the_tokens_under_the_logits() -> None:
    logits = np.log(np.array([[0.5, 0.25, 0.25], [0.125, 0.5, 0.375]], np.float32)) + 7
    assert bits(logits, [1, 0]) == pytest.approx(5, abs=1e-5)


@pytest.mark.parametrize(
    ("tokens", "looping"),
    [([1, 2, 3, 3, 3], True), ([9, 1, 2, 1, 2, 1, 2], True), ([1, 2, 1, 2, 3], False), ([], False)],
)
def test_a_loop_is_an_ending_that_repeats_itself(tokens: list[int], looping: bool) -> None:
    assert loops(tokens) is looping


def test_every_profile_is_found_by_name() -> None:
    assert find_profile("cpu").target.hidden % 64 == 0
    with pytest.raises(UserError, match="cpu, gpu"):
        find_profile("tpu")
