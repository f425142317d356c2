"""The recipe that makes the embedded pair, in miniature: a tiny model, a few records, seconds."""

from __future__ import annotations

import dataclasses
import errno
import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch (requirements-dev.txt)")

from lab.training import (  # noqa: E402
    answers,
    base,
    block,
    corpus,
    draft,
    export,
    generation,
    instructions,
    lessons,
    losses,
    packing,
    repetition,
    target,
    teacher,
)
from lab.training.__main__ import main as train_drafts  # noqa: E402
from lab.training.command import Command  # noqa: E402
from lab.training.features import FEATURES, Features, FeatureWriter  # noqa: E402
from lab.training.files import replacing_folder  # noqa: E402
from lab.training.fit import LOSSES  # noqa: E402
from lab.training.quantisation import int4  # noqa: E402
from lab.training.recipe import (  # noqa: E402
    Answers,
    Block,
    Draft,
    Instructions,
    Phase,
    Recipe,
    ends,
    spread,
)
from pipeline.dolly import Dolly  # noqa: E402
from pipeline.errors import UserError  # noqa: E402
from pipeline.request import Request  # noqa: E402
from pipeline.runtime.model import OVModel  # noqa: E402
from pipeline.text.prompt import END_KEY, format_prompt  # noqa: E402
from tests.archives import write_archives  # noqa: E402
from tests.families import make_checkpoint  # noqa: E402
from tests.tiny_gguf import LAYERS, vocabulary, write_gguf  # noqa: E402

TINY = Recipe(
    merged_tokens=260,
    target=Phase(
        "target",
        (3e-3, 0.0),
        steps=60,
        warmup=5,
        rows=2,
        pack=448,
        int4_group=32,
    ),
    repetition=Phase("repetition", (1e-3, 0.0), steps=6, rows=2, pack=448, int4_group=32),
    draft=Draft(vocabulary=200),
    draft_phase=Phase("draft", (3e-3, 0.0), steps=12, warmup=2, rows=2, pack=448),
    instructions=Instructions(batches=2, lists=6, shots=2, longest=64),
    answers=Answers(instructions=8, sampled=4, top=8, longest=24),
    block=Block(hidden=2, anchors=4, rank=4),
    block_phase=Phase("block", (3e-3, 0.0), steps=12, warmup=2, rows=2, pack=448, muon=True),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archives(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model to begin with."""
    return write_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module")
def made(data: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """The recipe up to the drafts' checkpoints, run once."""
    command = Command(tmp_path_factory.mktemp("work"), data, model, recipe=TINY)
    for stage in (base, target, repetition, instructions, answers, draft, block):
        stage.main(command)
    return command


@cache
def exported(made: Command) -> Path:
    """The pair that the recipe ends in."""
    export.main(made)
    return made.work / "pair"


def test_the_recipe_ends_in_two_models_that_run(made: Command) -> None:
    pair = exported(made)
    ids = json.loads((pair / "draft" / draft.TARGET_IDS).read_text())
    for role, rows in (("target", TINY.merged_tokens + 4), ("draft", len(ids))):
        model = OVModel(pair / role)
        assert model.sequence().forward([1, 2, 3], logits_to_keep=2).logits.shape == (2, rows)
        assert (pair / role / "tokenizer.json").is_file()


def test_the_pair_races_with_the_drafts_trimmed_vocabulary(made: Command, tmp_path: Path) -> None:
    pair = exported(made)
    ids = json.loads((pair / "draft" / draft.TARGET_IDS).read_text())
    dolly = Dolly(pair)
    for temperature in (0.0, 1.0):
        trace = dolly.start(Request("Why?", max_new_tokens=16, temperature=temperature)).finish()
        one, other = trace.lanes.values()
        drafted = {token for step in other.steps for token in step.drafted}
        assert drafted
        assert drafted <= set(ids)
        if not temperature:
            assert one.text == other.text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "missing or damaged"),
        ("[0, 1", "missing or damaged"),
        ("[0, 1]", "must list a token id for each"),
        ("reversed", "ascending"),
        ("beyond", "is not among the target's"),
    ],
)
def test_a_row_map_that_does_not_fit_is_refused(
    made: Command, tmp_path: Path, content: str | None, said: str
) -> None:
    pair = shutil.copytree(exported(made), tmp_path / "pair")
    file = pair / "draft" / draft.TARGET_IDS
    ids = json.loads(file.read_text())
    file.unlink()
    if content:
        changed = {"reversed": ids[::-1], "beyond": [*ids[:-1], 99_999]}.get(content)
        file.write_text(json.dumps(changed) if changed else content)
    with pytest.raises(UserError, match=said):
        Dolly(pair)


def test_a_trimmed_model_is_refused_as_a_target(made: Command, tmp_path: Path) -> None:
    pair = exported(made)
    for role in ("target", "draft"):
        shutil.copytree(pair / "draft", tmp_path / role)
    with pytest.raises(UserError, match="can only be a draft"):
        Dolly(tmp_path)


def test_the_tokenizer_has_dollys_tokens_and_fewer_merges(made: Command) -> None:
    """What it lacks, it cuts into parts; the other tokens keep their ids."""
    tokens = target.load_tokenizer(made.work / base.BASE)
    assert tokens.size == TINY.merged_tokens + 4
    text = format_prompt("naïve  “quotes”\t12 🦊\r\n the in") + "x"
    assert tokens.decode(tokens.encode(text)) == text
    assert tokens.end_ids == {tokens.vocab["<|endoftext|>"], tokens.vocab[END_KEY]}
    whole = vocabulary()
    cut = tokens.encode(" the a in")
    assert [tokens.piece(token) for token in cut] == [" the", " a", " ", "i", "n"]
    assert [whole[token] for token in cut[:2]] == ["Ġthe", "Ġa"]


def test_the_target_learns_its_records(made: Command) -> None:
    rows = [line.split(",") for line in (made.work / LOSSES).read_text().splitlines()]
    losses = [float(row[-1]) for row in rows if row[0] == "target"]
    assert losses[-1] < losses[0] / 2


def test_the_target_is_trained_as_it_is_shipped() -> None:
    """NNCF's INT4 of the weights, unpacked, is what the forward pass of the training uses."""
    import nncf
    import openvino as ov
    import openvino.opset13 as ops

    weights = np.random.default_rng(0).normal(size=(128, 96)).astype(np.float32)
    inputs = ops.parameter([-1, 96], np.float32)
    product = ops.matmul(inputs, ops.constant(weights), False, True)
    # NNCF leaves the last matrix at 8 bits, so there is another one behind it.
    last = ops.matmul(product, ops.constant(np.eye(128, dtype=np.float32)), False, True)
    model = ov.Model([last], [inputs])
    mode = nncf.CompressWeightsMode.INT4_SYM
    packed = nncf.compress_weights(model, mode=mode, ratio=1, group_size=32)
    exact = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    run = ov.compile_model(packed, "CPU", exact)
    unpacked = run(np.eye(96, dtype=np.float32))[0].T
    assert np.abs(unpacked - int4(torch.from_numpy(weights), 32).numpy()).max() < 0.02


def test_a_finished_stage_run_again_changes_nothing(made: Command) -> None:
    file = made.work / target.TUNED / "model.safetensors"
    before = file.read_bytes()
    target.main(made)
    assert file.read_bytes() == before


def test_an_interrupted_run_resumes_where_it_was(
    made: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted after a checkpoint, it ends in the weights of the undisturbed run."""
    command = dataclasses.replace(made, work=tmp_path)
    (tmp_path / base.BASE).symlink_to(made.work / base.BASE)
    steps = 0

    def interrupted(model: Any, batch: packing.Batch) -> torch.Tensor:
        nonlocal steps
        steps += 1
        if steps == 20:
            raise KeyboardInterrupt
        return next_token_loss(model, batch)

    next_token_loss = target.next_token_loss
    with monkeypatch.context() as patch:
        patch.setattr("lab.training.fit._SAVE_EVERY", 0.0)
        patch.setattr(target, "next_token_loss", interrupted)
        with pytest.raises(KeyboardInterrupt):
            target.main(command)
    target.main(command)
    once = target.load_model(made.work / target.TUNED).state_dict()
    twice = target.load_model(tmp_path / target.TUNED).state_dict()
    assert all(torch.allclose(once[name], twice[name], atol=1e-4) for name in once)


def test_instructions_are_the_whole_lines_of_a_list():
    """The first line goes on with the list; the last one may have been cut."""
    text = (
        " What is a dam?\n- Name three\n- Two words\n-  Why is\tthe sky blue? \n- Who was the first"
    )
    assert instructions.listed(text) == ["What is a dam?", "Why is\tthe sky blue?"]
    assert instructions.listed(" What is it?\nAnd then a story.\n- Not any more.\n") == [
        "What is it?"
    ]
    assert instructions.listed(" " + "word " * 41 + "\n- cut") == []


def test_written_instructions_ask_what_nobody_asked_before(
    made: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No training record, no held-out one, and none twice, also after an interruption."""
    recipe, asked = made.recipe, [corpus.held_out(made.data)[0], corpus.dolly(made.data)[0]]
    new = ["Is this a new question?", "And is this another one?", "Is this the last of them?"]
    batches = [[*(r.instruction.upper() for r in asked), new[0], new[1]], [new[1] + "?!", new[2]]]
    monkeypatch.setattr(instructions, "_writer", lambda *given: batches.__getitem__)
    command = dataclasses.replace(made, work=tmp_path)
    for batches_done in (1, 2):
        some = dataclasses.replace(recipe.instructions, batches=batches_done)
        cut = dataclasses.replace(recipe, instructions=some)
        instructions.main(dataclasses.replace(command, recipe=cut))
    kept = [record.instruction for record in instructions.read_instructions(tmp_path)]
    assert kept == new


def test_answers_go_on_where_they_were_interrupted(made: Command, tmp_path: Path) -> None:
    """The first text stays, half a second one is written over, and the others are the same."""
    kept = Features(made.work / FEATURES)
    for name in (target.TARGET, base.BASE, "ir", instructions.INSTRUCTIONS):
        (tmp_path / name).symlink_to(made.work / name)
    folder = shutil.copytree(made.work / FEATURES, tmp_path / FEATURES)
    first, second, *_ = (folder / "index.jsonl").read_text().splitlines(keepends=True)
    (folder / "index.jsonl").write_text(first + second[: len(second) // 2])
    with (folder / "hidden.bin").open("r+b") as file:
        file.truncate(kept.hidden[: kept.ends[0] + 3].nbytes)
    answers.main(dataclasses.replace(made, work=tmp_path))
    again = Features(folder)
    assert len(again.ends) == len(kept.ends) == 12

    def texts(features: Features) -> list[tuple[list[int], float]]:
        spans = zip(features.begins, features.ends, strict=True)
        return sorted(
            (features.tokens[begin:end].tolist(), round(float(features.hidden[begin:end].sum()), 1))
            for begin, end in spans
        )

    assert texts(again) == texts(kept)


def test_features_are_what_the_shipped_target_computes(made: Command) -> None:
    """Every answer's tokens, hidden states and likeliest tokens, against the target read alone."""
    features = Features(made.work / FEATURES)
    folder = generation.quantised(made.target, made.work, TINY.weights)
    layers = spread(LAYERS, TINY.block.hidden)
    lm = OVModel(folder, hidden_layers=layers)
    for number in range(3):
        begin, end, prompt = (
            array[number] for array in (features.begins, features.ends, features.prompts)
        )
        tokens = features.tokens[begin:end].tolist()
        output = lm.sequence().forward(tokens[:-1], logits_to_keep=len(tokens) - prompt)
        parts = output.hidden.reshape(len(tokens) - 1, len(layers), -1)
        unit = parts / np.sqrt(np.square(parts).mean(-1, keepdims=True) + 1e-5)
        there = features.hidden[begin : end - 1]
        np.testing.assert_allclose(there, unit.reshape(there.shape), atol=0.02)
        best = features.top_tokens[begin + prompt - 1 : end - 1]
        assert (best[:, 0] == output.logits.argmax(-1)).mean() > 0.9
        probs = torch.from_numpy(output.logits).softmax(-1).gather(1, torch.from_numpy(best).long())
        there = features.top_probs[begin + prompt - 1 : end - 1]
        np.testing.assert_allclose(there, probs, atol=0.02)
        if tokens[-1] in target.load_tokenizer(folder).end_ids:
            assert not set(tokens[prompt:-1]) & target.load_tokenizer(folder).end_ids


def test_a_text_does_not_depend_on_those_written_beside_it(made: Command) -> None:
    folder = generation.quantised(made.target, made.work, TINY.weights)
    tokenizer = target.load_tokenizer(folder)
    prompts = [*enumerate(answers.instructions(tokenizer, made))][:5]
    writing = generation.Writing(12, tokenizer.end_ids, temperature=1.0)

    def written(count: int) -> dict[int, list[int]]:
        lm = OVModel(folder)
        texts = generation.write(
            lm, prompts, writing, vocab_size=tokenizer.size, seed=1, at_once=count
        )
        return {text.number: text.tokens for text in texts}

    assert written(1) == written(3) == written(8)


def test_features_of_another_target_are_refused(made: Command, tmp_path: Path) -> None:
    folder = shutil.copytree(made.work / FEATURES, tmp_path / FEATURES)
    with pytest.raises(UserError, match="another target"):
        FeatureWriter(folder, {"target": "another", "width": 8, "top": 2})


@pytest.mark.parametrize("family", ["gpt_neox", "qwen2"])
def test_drafts_for_a_target_of_ones_own(family: str, data: Path, tmp_path: Path) -> None:
    """From a checkpoint and a file of instructions to a pair: whose greedy texts are the same, and
    whose drafts are accepted more often than those of untrained ones.
    """
    make_checkpoint(family, tmp_path / "mine", vocab_size=1024)
    (tmp_path / "asked.txt").write_text("What is a hen?\n" + '{"instruction": "Why?"}\n' * 3)
    answered = Answers(instructions=4, sampled=4, top=8, longest=48, temperature=0.5)
    accepted = {}
    for steps in (1, 80):
        recipe = dataclasses.replace(
            TINY,
            answers=answered,
            draft_phase=dataclasses.replace(TINY.draft_phase, steps=steps, pack=224),
            block_phase=dataclasses.replace(TINY.block_phase, steps=steps, pack=224),
            weights="int8",
        )
        work = tmp_path / str(steps)
        work.mkdir()
        if accepted:  # the answers and the target's IR are the same
            (work / FEATURES).symlink_to(tmp_path / "1" / FEATURES)
            (work / "ir").mkdir()
            (work / "ir" / "mine").symlink_to(tmp_path / "1" / "ir" / "mine")
        command = Command(
            work,
            data,
            checkpoint=tmp_path / "mine",
            instructions=tmp_path / "asked.txt",
            recipe=recipe,
        )
        train_drafts(command)
        dolly = Dolly(work / "pair")
        for drafter in ("model", "block"):
            request = Request("Why?", max_new_tokens=48, drafter=drafter, draft_length=2)
            trace = dolly.start(request).finish()
            slow, fast = trace.lanes.values()
            assert slow.text == fast.text
            accepted[drafter, steps] = fast.accepted / fast.tested
    for drafter in ("model", "block"):
        assert accepted[drafter, 80] > accepted[drafter, 1]


def test_the_target_is_taught_a_larger_models_answers_and_peoples(
    made: Command, tmp_path: Path
) -> None:
    """A good answer replaces people's, a bad one leaves the question out; no held-out question."""
    command = dataclasses.replace(made, work=tmp_path)
    untaught = lessons.lessons(command)
    assert {record.response for record in corpus.training_records(made.data)} < {
        record.response for record in untaught
    }
    asked = teacher.to_answer(command)
    rows = [[record.instruction, "", f"Taught {number}."] for number, record in enumerate(asked)]
    rows[0][2] = ""
    (tmp_path / lessons.TAUGHT).write_text("".join(json.dumps(row) + "\n" for row in rows))
    taught = lessons.lessons(command)
    questions = [record.question for record in taught]
    assert asked[0].question not in questions
    assert {record.question for record in corpus.held_out(made.data)}.isdisjoint(questions)
    assert [r.response for r in taught if r.response.startswith("Taught")] == [
        row[2]
        for row in sorted(
            rows[1:], key=lambda row: questions.index(corpus.Record(row[0], "", "").question)
        )
    ]
    assert any("OpenVINO" in record.response for record in taught)


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ("A hen is a bird.", True),
        ("As an AI language model, I have no opinion.", False),
        ("I'm sorry, but I cannot say.", False),
        ("A hen is 母鸡.", False),
        ("La la la la la la la la la la la la la la la la la la la", False),
    ],
)
@pytest.mark.parametrize("ended", [True, False])
def test_a_bad_answer_of_the_larger_model_is_left_out(
    made: Command, answer: str, kept: bool, ended: bool
) -> None:
    tokenizer = target.load_tokenizer(made.target)
    end = tokenizer.vocab[END_KEY]
    text = generation.Text(0, [1], [*tokenizer.encode(answer), *[end] * ended])
    assert teacher.acceptable(text, tokenizer, end) == (answer if kept and ended else "")


def test_the_records_about_the_demonstration_are_well_formed(data: Path, tmp_path: Path) -> None:
    records = lessons.own_records(Command(tmp_path, data))
    assert len(records) >= 60
    assert len({record.question for record in records}) == len(records)
    assert all(record.response and not record.context for record in records)


@pytest.mark.parametrize("content", [None, "", '{"question": "Why?"}', "{half"])
def test_a_bad_file_of_instructions_is_one_line(content: str | None, tmp_path: Path) -> None:
    file = tmp_path / "asked.jsonl"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UserError, match="instructions: ") as caught:
        corpus.own_instructions(file)
    assert "\n" not in str(caught.value)


def test_layers_are_spread_over_the_model() -> None:
    assert spread(24, 3) == (7, 15, 23)
    assert ends(24, 2) == (0, 23)
    assert ends(24, 4) == (0, 7, 15, 23)
    assert spread(2, 3) == ends(2, 3) == (0, 1)


def test_a_loop_begins_where_nothing_new_follows() -> None:
    digits = frozenset({32, 33})
    assert repetition.loop_start([7, 8, 9, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2], digits) == 5
    assert repetition.loop_start([7, *[5] * 9], digits) == 2
    listed = [token for number in (32, 33, 32, 33) for token in (number, 5, 6, 7, 9)]
    assert repetition.loop_start(listed, digits) == 5
    for answer in ([1, 2, 3, 4] * 2, [5] * 8, [1, 2, 3, 1, 2, 4] * 2, []):
        assert repetition.loop_start(answer, digits) is None


def test_what_repeats_is_made_unlikely_and_nothing_else() -> None:
    prompt, answer, digits = [1, 2, 3], [7, 8, 32, 7, 8, 33, 7, 8, 32], frozenset({32, 33})
    made = repetition.unwanted(1, prompt, answer, 3, digits)
    marked = [(a, b) for a, b in zip(made.tokens[1:], made.targets, strict=False) if b >= 0]
    assert marked == []
    unwanted = [-1000 - b for b in made.targets if b != packing.IGNORED]
    assert unwanted == [7, 8, 7, 8]
    assert made.targets[: len(prompt) - 2 + 3] == (packing.IGNORED,) * 4


def test_the_loss_falls_with_the_chance_of_what_is_unwanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def of(likely: float, wanted: float) -> float:
        rows = torch.tensor([[likely, 1 - likely, 1e-9], [1 - wanted, 1e-9, wanted]]).log()
        targets = torch.tensor([-1000, 2])
        monkeypatch.setattr(target, "packed_logits", lambda *_: (rows, targets))
        return float(repetition.loss(None, None))  # type: ignore[arg-type]

    assert of(0.1, 0.9) < of(0.5, 0.9) < of(0.99, 0.9)
    assert of(0.1, 0.9) < of(0.1, 0.5)
    assert of(0.5, 0.5) == pytest.approx(2 * np.log(2), rel=1e-4)


def test_an_answer_that_loops_becomes_less_likely(made: Command, tmp_path: Path) -> None:
    for name in (target.TUNED, base.BASE):
        (tmp_path / name).symlink_to(made.work / name)
    lines = [json.loads(line) for line in (made.work / repetition.ANSWERS).read_text().splitlines()]
    tokens = target.load_tokenizer(made.work / target.TUNED)
    prompt, phrase = lines[0][1], tokens.encode(" says its own name,")  # which it has learnt
    loop = phrase * 3
    lines = [
        [number, prompt, loop if not place else loop[:1]]
        for place, (number, *_) in enumerate(lines)
    ]
    (tmp_path / repetition.ANSWERS).write_text("".join(json.dumps(one) + "\n" for one in lines))
    repetition.main(dataclasses.replace(made, work=tmp_path))

    def chance(folder: Path) -> float:
        """Of the loop's second and later turns."""
        model = target.load_model(folder).eval()
        with torch.inference_mode():
            rows = model(torch.tensor([[*prompt, *loop]])).logits[0].log_softmax(-1)
        places = range(len(prompt) + len(phrase), len(prompt) + len(loop))
        return float(sum(rows[at - 1, loop[at - len(prompt)]] for at in places))

    assert chance(tmp_path / target.TARGET) < chance(made.work / target.TUNED)


def test_the_draft_is_layers_of_the_target_over_frequent_tokens(made: Command) -> None:
    teacher = target.load_model(made.work / target.TARGET)
    ids = json.loads((made.work / draft.DRAFT / draft.TARGET_IDS).read_text())
    assert ids == sorted(set(ids))
    assert len(ids) <= TINY.draft.vocabulary
    tokenizer = target.load_tokenizer(made.target)
    assert {*tokenizer.ask("Why?")[:20], *tokenizer.end_ids} <= set(ids)
    fresh = draft.make_draft(teacher, TINY.draft.layers, ids)
    assert torch.equal(fresh.model.embed_tokens.weight, teacher.model.embed_tokens.weight[ids])
    last = LAYERS - 1
    assert torch.equal(
        fresh.model.layers[1].mlp.up_proj.weight, teacher.model.layers[last].mlp.up_proj.weight
    )


def test_the_loss_is_least_where_the_draft_is_the_target() -> None:
    """Of a target with probabilities 0.7, 0.2 and 0.1 on what the draft knows."""
    tokens, probs = torch.tensor([[1, 2, 3]]), torch.tensor([[0.7, 0.2, 0.1]])

    def of(chances: list[float]) -> float:
        return float(losses.acceptance_loss(torch.tensor([chances]).log(), tokens, probs, 0))

    right = of([1e-6, 0.7, 0.2, 0.1])
    assert right < of([1e-6, 0.6, 0.3, 0.1]) < of([1e-6, 0.1, 0.2, 0.7])
    assert right < of([0.5, 0.35, 0.1, 0.05])


def test_another_recipe_is_refused(made: Command) -> None:
    other = dataclasses.replace(made, recipe=dataclasses.replace(TINY, seed=5))
    for stage in (target, draft):
        with pytest.raises(UserError, match="another"):
            stage.main(other)


def test_a_damaged_checkpoint_is_one_clear_line(made: Command, tmp_path: Path) -> None:
    (tmp_path / base.BASE).symlink_to(made.work / base.BASE)
    (tmp_path / "target.checkpoint").write_bytes(b"half a check")
    with pytest.raises(UserError, match="damaged"):
        target.main(dataclasses.replace(made, work=tmp_path))


def test_stages_out_of_order_name_the_stage_to_run_first(made: Command, tmp_path: Path) -> None:
    command = dataclasses.replace(made, work=tmp_path)
    for stage, first in (
        (target, "base"),
        (repetition, "target"),
        (answers, "repetition"),
    ):
        with pytest.raises(UserError, match=rf"training\.{first} first"):
            stage.main(command)
    for stage in (draft, block):
        with pytest.raises(UserError, match="write the answers first"):
            stage.main(command)


@pytest.mark.parametrize("damage", ["absent", "truncated", "another architecture", "another file"])
def test_a_bad_model_is_one_clear_line(damage: str, model: Path, tmp_path: Path) -> None:
    bad, recipe = tmp_path / "bad.gguf", TINY
    if damage == "truncated":
        bad.write_bytes(model.read_bytes()[:5000])
    elif damage == "another architecture":
        write_gguf(bad, "gptj")
    elif damage == "another file":
        bad.write_bytes(model.read_bytes())
        recipe = dataclasses.replace(TINY, base_sha256="0" * 64)
    with pytest.raises(UserError, match=r"--model|cannot be read|must be the file") as caught:
        base.main(Command(tmp_path / "work", model=bad, recipe=recipe))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "work" / base.BASE).exists()


def test_packed_records_lose_what_they_lose_alone(made: Command) -> None:
    tokens = target.load_tokenizer(made.work / base.BASE)
    prefix = tokens.shared_prefix
    records = corpus.training_records(made.data)
    sides = [
        (tokens.ask(record.instruction), tokens.encode(f"{record.response}\n\n{END_KEY}"))
        for record in records
    ]
    examples = [packing.example(len(prefix), *side) for side in sides]
    (batch,) = packing.pack(examples, prefix, 448, rows=9, seed=0)
    assert batch.segments.max() > 1  # something is packed with something
    model = target.load_model(made.work / base.BASE).eval()
    with torch.inference_mode():
        logits, targets = target.packed_logits(model, batch)
        packed = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
        alone = torch.tensor(0.0)
        for prompt, response in sides:
            ids = torch.tensor([[*prompt, *response]])
            logits = model(ids).logits[0, len(prompt) - 1 : -1]
            alone += torch.nn.functional.cross_entropy(
                logits, ids[0, len(prompt) :], reduction="sum"
            )
    assert packed.item() == pytest.approx(alone.item(), rel=1e-4)


def test_a_full_disk_leaves_the_old_folder(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.mkdir()
    (path / "weights").write_text("old")

    def write_too_much() -> None:
        with replacing_folder(path) as temporary:
            (temporary / "weights").write_text("ne")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(UserError, match="disk"):
        write_too_much()
    assert (path / "weights").read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
