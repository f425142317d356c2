"""The recipe that makes the embedded pair, in miniature: a tiny model, a few records, seconds."""

import errno
import json
import shutil
from dataclasses import replace
from functools import cache, partial
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs torch (requirements-dev.txt)")

import torch

from lab import corpus
from lab.training import (
    __main__,
    acceptance,
    answers,
    base,
    block,
    draft,
    generation,
    instructions,
    packing,
    repetition,
    target,
    teacher,
)
from lab.training.command import Command, timed
from lab.training.features import FEATURES, Features, FeatureWriter
from lab.training.files import read_lines, replacing_folder
from lab.training.fit import LOSSES
from lab.training.quantisation import adapt, int4, quantise, restore
from lab.training.recipe import Answers, Block, Draft, Instructions, Phase, Recipe, ends, spread
from pipeline.dolly import Dolly
from pipeline.errors import UserError
from pipeline.models.store import Store
from pipeline.request import Request
from pipeline.runtime.model import OVModel
from pipeline.text.prompt import END_KEY, format_prompt
from tests.archives import write_archives
from tests.fake_hub import fake_hub
from tests.families import make_checkpoint
from tests.tiny_gguf import LAYERS, vocabulary, write_gguf

TINY = Recipe(
    merged_tokens=260,
    target=Phase("target", (3e-3, 0.0), steps=60, warmup=5, rows=2, pack=448, int4_group=32),
    repetition=Phase("repetition", (1e-3, 0.0), steps=6, rows=2, pack=448, int4_group=32),
    draft=Draft(vocabulary=200),
    draft_phase=Phase("draft", (3e-3, 0.0), steps=12, warmup=2, rows=2, pack=448),
    instructions=Instructions(batches=2, lists=6, shots=2, longest=64),
    answers=Answers(instructions=8, sampled=4, top=8, longest=24),
    block=Block(hidden=2, anchors=4, rank=4),
    block_phase=Phase("block", (3e-3, 0.0), steps=12, warmup=2, rows=2, pack=448, muon=True),
)


OWN = target.OWN


@pytest.fixture(scope="module", autouse=True)
def few_records(tmp_path_factory):
    """Of our own; all would be most of what the tiny model reads."""
    few = tmp_path_factory.mktemp("own") / OWN.name
    few.write_text("".join(OWN.read_text().splitlines(keepends=True)[:40]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, "OWN", few)
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_archives(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A tiny model to begin with."""
    return write_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module")
def made(data, model, tmp_path_factory):
    """The recipe up to the drafts' checkpoints, run once."""
    command = Command(tmp_path_factory.mktemp("work"), data, model, recipe=TINY)
    stages = ("base", "target", "repetition", "instructions", "answers", "draft", "block")
    __main__.run(command, stages)
    return command


@pytest.fixture
def elsewhere(made, tmp_path):
    """Another WORK, with some of what was made."""

    def link(*names):
        for name in names:
            (tmp_path / name).symlink_to(made.work / name)
        return replace(made, work=tmp_path)

    return link


@cache
def exported(made):
    """The pair that the recipe ends in."""
    __main__.run(made, ["export"])
    return made.work / "pair"


def vocabulary_of(pair):
    return json.loads((pair / "draft" / draft.TARGET_IDS).read_text())


def test_the_pair_races_with_the_drafts_trimmed_vocabulary(made):
    pair = exported(made)
    assert not [*pair.glob("*/openvino_config.json")]  # which names the checkpoint's folder
    dolly = Dolly(pair)
    for temperature in (0.0, 1.0):
        trace = dolly.start(Request("Why?", max_new_tokens=16, temperature=temperature)).finish()
        one, other = trace.lanes.values()
        drafted = {token for step in other.steps for token in step.drafted}
        assert drafted
        assert drafted <= {*vocabulary_of(pair)}
        if not temperature:
            assert one.text == other.text


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda ids: None, "missing or damaged"),
        (lambda ids: ids[:2], "must list a token id for each"),
        (lambda ids: ids[::-1], "ascending"),
        (lambda ids: [*ids[:-1], 99_999], "is not among the target's"),
    ],
)
def test_a_row_map_that_does_not_fit_is_refused(made, tmp_path, change, reason):
    pair = shutil.copytree(exported(made), tmp_path / "pair")
    changed = change(vocabulary_of(pair))
    (pair / "draft" / draft.TARGET_IDS).write_text(json.dumps(changed) if changed else "[0, 1")
    with pytest.raises(UserError, match=reason):
        Dolly(pair)


def test_a_trimmed_model_is_refused_as_a_target(made, tmp_path):
    for role in ("target", "draft"):
        shutil.copytree(exported(made) / "draft", tmp_path / role)
    with pytest.raises(UserError, match="can only be a draft"):
        Dolly(tmp_path)


def test_the_tokenizer_has_dollys_tokens_and_fewer_merges(made):
    """What it lacks, it cuts into parts; the other tokens keep their ids."""
    tokens = target.load_tokenizer(made.work / base.BASE)
    assert tokens.size == TINY.merged_tokens + 4
    text = format_prompt("naïve  “quotes”\t12 🦊\r\n the in") + "x"
    assert tokens.decode(tokens.encode(text)) == text
    assert tokens.end_ids == {tokens.vocab["<|endoftext|>"], tokens.vocab[END_KEY]}
    cut = tokens.encode(" the a in")
    assert [tokens.piece(token) for token in cut] == [" the", " a", " ", "i", "n"]
    assert [vocabulary()[token] for token in cut[:2]] == ["Ġthe", "Ġa"]


def test_the_target_is_trained_as_it_is_shipped():
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
    unpacked = ov.compile_model(packed, "CPU", exact)(np.eye(96, dtype=np.float32))[0].T
    assert np.abs(unpacked - int4(torch.from_numpy(weights), 32).numpy()).max() < 0.02


def test_training_sees_int4_weights_and_changes_float32_ones():
    layers = torch.nn.ModuleList([torch.nn.Linear(64, 8, bias=False)])
    model = torch.nn.ModuleDict({"model": torch.nn.ModuleDict({"layers": layers})})
    weights = layers[0].weight.detach().clone()
    quantise(model, 32)
    torch.testing.assert_close(layers[0].weight, int4(weights, 32))
    layers[0](torch.ones(64)).sum().backward()
    (master,) = model.parameters()
    assert torch.equal(master.grad, torch.ones(8, 64))
    restore(model)
    assert torch.equal(model.state_dict()["model.layers.0.weight"], weights)


def test_a_sum_of_low_rank_is_trained_with_the_gradients_of_the_whole_weights():
    """Those of the weights W + up down as they are rounded, passed on to up and down."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(64, 8)
    whole = torch.nn.ModuleDict({"layers": torch.nn.ModuleList([layer])})
    model = torch.nn.ModuleDict({"model": whole})
    adapt(model, 2, 32)
    adapted = whole["layers"][0]
    torch.nn.init.normal_(adapted.up)
    inputs = torch.randn(5, 64, requires_grad=True)
    outputs = adapted(inputs)
    rounded = int4(layer.weight + adapted.up @ adapted.down, 32)
    torch.testing.assert_close(outputs, inputs @ rounded.T + layer.bias)
    slopes = torch.randn(5, 8)
    (outputs * slopes).sum().backward()
    of_weights = slopes.T @ inputs
    torch.testing.assert_close(adapted.up.grad, of_weights @ adapted.down.T)
    torch.testing.assert_close(adapted.down.grad, adapted.up.T @ of_weights)
    torch.testing.assert_close(inputs.grad, slopes @ rounded)
    assert layer.weight.grad is None
    expected = layer.weight + adapted.up @ adapted.down
    restore(model)
    assert model.state_dict()["model.layers.0.weight"].equal(expected.detach())


def test_an_interrupted_run_resumes_where_it_was(made, elsewhere, monkeypatch):
    """Interrupted after a checkpoint, it ends in the weights of the undisturbed run, which has
    learned its records; and when it is finished, it changes nothing.
    """
    command, steps = elsewhere(base.BASE), iter(range(60))

    def interrupted(model, batch):
        if next(steps) == 20:
            raise KeyboardInterrupt
        return next_token_loss(model, batch)

    next_token_loss = target.next_token_loss
    with monkeypatch.context() as patch:
        patch.setattr("lab.training.fit._SAVE_EVERY", 0.0)
        patch.setattr(target, "next_token_loss", interrupted)
        with pytest.raises(KeyboardInterrupt):
            target.main(command)
    target.main(command)
    file = command.work / target.TUNED / "model.safetensors"
    before = file.read_bytes()
    target.main(command)
    assert file.read_bytes() == before
    once = target.load_model(made.work / target.TUNED).state_dict()
    twice = target.load_model(command.work / target.TUNED).state_dict()
    assert all(torch.allclose(once[name], twice[name], atol=1e-4) for name in once)
    losses = [row["loss"] for row in read_lines(command.work / LOSSES)]
    assert losses[-1] < losses[0] / 2


def test_what_is_trained_with_a_rank_is_kept_beside_and_makes_the_same_model(
    elsewhere, monkeypatch
):
    """It learns, leaves the embeddings as they were, and is not trained again where it is there."""
    phase = replace(TINY.target, rank=4, rates=(2e-2, 0.0))
    command = elsewhere(base.BASE)
    command = replace(command, recipe=replace(TINY, target=phase))
    target.main(command)
    losses = [row["loss"] for row in read_lines(command.work / LOSSES)]
    assert losses[-1] < 0.85 * losses[0]
    before, after = (
        target.load_model(command.work / name).state_dict() for name in (base.BASE, target.TUNED)
    )
    changed = {name for name in after if not torch.equal(before[name], after[name])}
    assert any("q_proj.weight" in name for name in changed)
    assert not any("embed_tokens" in name for name in changed)
    (command.work / "target.checkpoint").unlink()
    shutil.rmtree(command.work / target.TUNED)
    monkeypatch.setattr(target, "next_token_loss", None)
    target.main(command)
    again = target.load_model(command.work / target.TUNED).state_dict()
    assert all(torch.equal(after[name], again[name]) for name in after)
    with pytest.raises(UserError, match="another configuration"):
        target.main(replace(command, recipe=replace(command.recipe, seed=5)))
    (command.work / "target.safetensors").write_bytes(b"half a file")
    with pytest.raises(UserError, match="damaged"):
        target.main(command)


def test_a_checkpoint_of_another_recipe_or_a_damaged_one_is_refused(made, elsewhere):
    for stage in (target, draft):
        with pytest.raises(UserError, match="another"):
            stage.main(replace(made, recipe=replace(TINY, seed=5)))
    command = elsewhere(base.BASE)
    (command.work / "target.checkpoint").write_bytes(b"half a check")
    with pytest.raises(UserError, match="damaged"):
        target.main(command)


def test_instructions_are_the_whole_lines_of_a_list():
    """The first line goes on with the list; the last one may have been cut."""
    text = " What is a dam?\n- Name three\n- Two words\n-  Why is\tthe sky blue? \n- Who was the f"
    assert instructions.listed(text) == ["What is a dam?", "Why is\tthe sky blue?"]
    text = " What is it?\nAnd then a story.\n- Not any more.\n"
    assert instructions.listed(text) == ["What is it?"]
    assert instructions.listed(" " + "word " * 41 + "\n- cut") == []


def test_written_instructions_ask_what_nobody_asked_before(elsewhere, monkeypatch):
    """No training record, no held-out one, and none twice, also after an interruption."""
    command = elsewhere()
    asked = [corpus.held_out(command.data)[0], corpus.training_records(command.data)[0]]
    new = ["Is this a new question?", "And is this another one?", "Is this the last of them?"]
    batches = [[*(r.instruction.upper() for r in asked), *new[:2]], [new[1] + "?!", new[2]]]
    monkeypatch.setattr(
        instructions, "batches", lambda command, shown, numbers: map(batches.__getitem__, numbers)
    )
    for done in (1, 2):
        recipe = replace(TINY, instructions=replace(TINY.instructions, batches=done))
        instructions.main(replace(command, recipe=recipe))
    kept = [record.instruction for record in instructions.read_instructions(command.work)]
    assert kept == new


def test_answers_go_on_where_they_were_interrupted(made, elsewhere):
    """The first text stays, half a second one is written over, and the others are the same."""
    kept = Features(made.work / FEATURES)
    command = elsewhere(target.TARGET, base.BASE, "ir", instructions.INSTRUCTIONS)
    folder = shutil.copytree(made.work / FEATURES, command.work / FEATURES)
    first, second, *_ = (folder / "index.jsonl").read_text().splitlines(keepends=True)
    (folder / "index.jsonl").write_text(first + second[: len(second) // 2])
    with (folder / "rows.bin").open("r+b") as file:
        file.truncate(int(kept.ends[0] + 3) * kept.hidden.strides[0])
    answers.main(command)
    again = Features(folder)
    assert len(again.ends) == len(kept.ends) == 12

    def texts(features):
        spans = zip(features.begins, features.ends, strict=True)
        return sorted(
            (features.tokens[begin:end].tolist(), round(float(features.hidden[begin:end].sum()), 1))
            for begin, end in spans
        )

    assert texts(again) == texts(kept)
    with pytest.raises(UserError, match="another target"):
        FeatureWriter(folder, {"target": "another", "width": 8, "top": 2})


def test_features_are_what_the_shipped_target_computes(made):
    """Every answer's tokens, hidden states and likeliest tokens, against the target read alone."""
    features = Features(made.work / FEATURES)
    folder = generation.quantised(made.target, made.work, TINY.weights)
    layers = spread(LAYERS, TINY.block.hidden)
    lm, ending = OVModel(folder, hidden_layers=layers), target.load_tokenizer(folder).end_ids
    columns = (features.begins[:3], features.ends[:3], features.prompts[:3])
    for begin, end, prompt in zip(*columns, strict=True):
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
        assert not {*tokens[prompt:-1]} & ending


def test_a_text_does_not_depend_on_those_written_beside_it(made):
    folder = generation.quantised(made.target, made.work, TINY.weights)
    tokenizer = target.load_tokenizer(folder)
    prompts = [*enumerate(answers.instructions(tokenizer, made))][:5]
    writing = generation.Writing(12, tokenizer.end_ids, temperature=1.0)

    def written(count):
        texts = generation.write(folder, prompts, writing, seed=1, at_once=count)
        return {text.number: text.tokens for text in texts}

    assert written(1) == written(3) == written(8)


def test_what_all_prompts_begin_with_leaves_a_token_of_each():
    assert generation.shared_prefix([[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 3]]) == [1, 2]
    assert generation.shared_prefix([[1, 2], [3, 2]]) == []
    assert generation.shared_prefix([[1, 2]]) == [1]


@pytest.mark.parametrize(("family", "on_hub"), [("gpt_neox", False), ("qwen2", True)])
def test_drafts_for_a_target_of_ones_own(family, on_hub, tmp_path, monkeypatch):
    """From a folder or a name on the hub, and a file of instructions, to a pair: whose greedy texts
    are the same, and whose drafts are accepted more often than those of untrained ones.
    """
    make_checkpoint(family, tmp_path / "mine", vocab_size=1024)
    lines = ["What is a hen?\n", *['{"instruction": "Why?"}\n'] * 6]  # the last is held out
    (tmp_path / "asked.txt").write_text("".join(lines))
    given = ["--target", "me/mine" if on_hub else str(tmp_path / "mine"), "--weights", "int8"]
    given += ["--instructions", str(tmp_path / "asked.txt"), "--cache-dir", str(tmp_path / "kept")]
    accepted = {}
    for steps in (1, 80):
        work = tmp_path / str(steps)
        recipe = replace(
            TINY,
            answers=Answers(instructions=4, sampled=4, top=8, longest=48, temperature=0.5),
            draft_phase=replace(TINY.draft_phase, steps=steps, pack=224),
            block_phase=replace(TINY.block_phase, steps=steps, pack=224),
        )
        monkeypatch.setattr(__main__, "RECIPE", recipe)
        monkeypatch.setattr(acceptance, "_TESTS", 1)  # of the one question that is held out
        if accepted:  # the answers and the target's IR are the same
            work.mkdir()
            (work / FEATURES).symlink_to(tmp_path / "1" / FEATURES)
            (work / "ir").symlink_to(tmp_path / "1" / "ir")
        with fake_hub() as hub:
            files = (tmp_path / "mine").iterdir()
            hub.repositories["me/mine"] = {file.name: file.read_bytes() for file in files}
            monkeypatch.setattr(__main__, "Store", partial(Store, endpoint=hub.url))
            assert __main__.main([*given, "--work", str(work)]) == 0
            assert bool(hub.asked) is on_hub
        dolly = Dolly(work / "pair")
        for role in ("draft", "block"):
            reached = dolly.about[role]["acceptance"]
            assert reached
            assert all(0 <= share <= 1 for share in reached)
        for drafter in ("model", "block"):
            request = Request("Why?", max_new_tokens=48, drafter=drafter, draft_length=2)
            slow, fast = dolly.start(request).finish().lanes.values()
            assert slow.text == fast.text
            accepted[drafter, steps] = fast.accepted / fast.tested
    for drafter in ("model", "block"):
        assert accepted[drafter, 80] > accepted[drafter, 1]


def test_the_target_is_taught_a_larger_models_answers_and_peoples(made, elsewhere):
    """A good answer replaces people's, a bad or short one leaves the question out; no held-out
    question.
    """
    command = elsewhere()
    people = {record.response for record in corpus.training_records(made.data)}
    assert people < {record.response for record in target.lessons(command)}
    asked = teacher.to_answer(command)
    rows = [[number, f"Taught {number}: {'word ' * 20}"] for number in asked]
    rows[0][1], rows[1][1] = "", "Taught in a few words."
    (command.work / target.TAUGHT).write_text("".join(json.dumps(row) + "\n" for row in rows))
    taught = target.lessons(command)
    questions = {record.question for record in taught}
    assert {asked[number].question for number, _ in rows[:2]}.isdisjoint(questions)
    assert {record.question for record in corpus.held_out(made.data)}.isdisjoint(questions)
    found = {(record.instruction, record.response) for record in taught}
    assert {(asked[number].instruction, text) for number, text in rows[2:]} <= found
    assert any("OpenVINO" in record.response for record in taught)


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ("A hen is a bird that lays eggs on a farm.", True),
        ("As an AI language model, I have no opinion on eggs.", False),
        ("I'm sorry, but I cannot say what a hen is to me.", False),
        ("A hen is a bird that lays eggs on a 母鸡.", False),
        ("La la la la la la la la la la la la la la la la la la la", False),
    ],
)
def test_a_bad_answer_of_the_larger_model_is_left_out(made, answer, kept):
    tokenizer = target.load_tokenizer(made.target)
    end = tokenizer.vocab[END_KEY]
    for ended in (True, False):
        text = generation.Text(0, [1], [*tokenizer.encode(answer), *[end] * ended])
        assert teacher.acceptable(text, tokenizer, end) == (answer if kept and ended else "")


def test_our_own_records_are_well_formed(data, tmp_path, monkeypatch):
    monkeypatch.setattr(target, "OWN", OWN)
    records = target.own_records(Command(tmp_path, data))
    assert len(records) >= 160
    assert len({record.question for record in records}) == len(records)
    assert all(record.response and not record.context for record in records)


def test_layers_are_spread_over_the_model():
    assert spread(24, 3) == (7, 15, 23)
    assert ends(24, 2) == (0, 23)
    assert ends(24, 4) == (0, 7, 15, 23)
    assert spread(2, 3) == ends(2, 3) == (0, 1)


def test_a_sentence_is_read_several_times_after_what_stood_before_it(made):
    tokens = target.load_tokenizer(made.work / target.TUNED)
    prompt, end = tokens.ask("Why?"), tokens.vocab[END_KEY]
    drawn = set()
    for seed in range(20):
        text = generation.Text(0, prompt, [*tokens.encode("It is so. It was not."), end])
        made_of = repetition.repetition(text, tokens, Random(seed))
        size = -made_of.targets[-1]
        start = len(made_of.targets) - made_of.targets[::-1].index(packing.IGNORED)
        first = [*made_of.targets[start : start + size]]
        again = made_of.tokens[start + 1 + size :]
        assert [*made_of.tokens[start + 1 : start + 1 + size]] == first
        assert [*again] == (first * 99)[: len(again)]
        assert {*made_of.targets[start + size :]} == {-size}
        before = tokens.decode(made_of.tokens[len(prompt) - len(tokens.shared_prefix) : start + 1])
        drawn.add((before, tokens.decode(first)))
    assert drawn == {("", " It is so."), ("It is so.", " It was not.")}


@pytest.mark.parametrize(("share", "least"), [(0.25, False), (0.5, True), (1.0, False)])
def test_the_loss_of_a_repetition_is_least_at_half_of_the_chance_before(share, least):
    """Of a model that gives the tokens 1 and 2 a chance of 0.8, and then `share` times as much."""
    tokens = torch.tensor([[0, 1, 2, 1]])
    targets = torch.tensor([[1, 2, -2, -2]])
    chances = torch.tensor([0.8, 0.8, 0.8 * share, 0.8 * share])

    class Model:
        def base_model(self, **_):
            return SimpleNamespace(last_hidden_state=torch.arange(4.0)[None, :, None])

        def get_output_embeddings(self):
            def logits(places):
                rows = torch.full((len(places), 3), 1e-9)
                rows[torch.arange(4), torch.tensor([1, 2, 1, 2])] = chances
                rows[:, 0] = 1 - chances
                return rows.log()

            return logits

    zeros = torch.zeros_like(tokens)
    batch = packing.Batch(tokens, targets, zeros, zeros)
    loss = float(repetition.loss(Model(), batch))
    lowest = -np.log(0.8)
    assert (loss - lowest < 1e-5) == least
    assert loss > lowest - 1e-5


def test_a_model_that_goes_on_with_a_sentence_is_cured(made):
    tokens = target.load_tokenizer(made.work / target.TUNED)
    model = target.load_model(made.work / target.TUNED)
    prompt, sentence = tokens.ask("Why?"), tokens.encode(" It knows its name.")
    size, prefix = len(sentence), tokens.shared_prefix
    text = generation.Text(0, prompt, [*sentence, tokens.vocab[END_KEY]])

    def train(example, loss):
        batch = next(packing.pack([example], prefix, 448, 1, 0))
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for _ in range(40):
            optimiser.zero_grad()
            loss(model, batch).backward()
            optimiser.step()
        with torch.inference_mode():
            rows = model(torch.tensor([[*prompt, *sentence * 3]])).logits[0, -size - 1 : -1]
        chances = rows.softmax(-1)[range(size), sentence]
        return float(chances.mean())  # of the third time

    looping = packing.example(len(prefix), prompt, sentence * 4)
    assert train(looping, target.next_token_loss) > 0.9
    assert train(repetition.repetition(text, tokens, Random(0)), repetition.loss) < 0.4


def test_the_draft_is_layers_of_the_target_over_frequent_tokens(made):
    whole = target.load_model(made.work / target.TARGET)
    ids = vocabulary_of(made.work)
    assert ids == sorted(set(ids))
    assert len(ids) <= TINY.draft.vocabulary
    tokenizer = target.load_tokenizer(made.target)
    assert {*tokenizer.ask("Why?")[:20], *tokenizer.end_ids} <= set(ids)
    fresh = draft.make_draft(whole, TINY.draft.layers, ids)
    assert torch.equal(fresh.model.embed_tokens.weight, whole.model.embed_tokens.weight[ids])
    mine, theirs = fresh.model.layers[1].mlp, whole.model.layers[LAYERS - 1].mlp
    assert torch.equal(mine.up_proj.weight, theirs.up_proj.weight)


def test_a_narrower_feed_forward_keeps_the_channels_that_matter(made):
    """Where the others are zero, it computes the same."""
    whole = target.load_model(made.work / target.TARGET)
    wide, tokens = whole.config.intermediate_size, torch.tensor([[3, 1, 4, 1, 5]])
    with torch.no_grad():
        for layer in whole.model.layers:
            layer.mlp.down_proj.weight[:, torch.randperm(wide)[: wide // 2]] = 0
        narrow = draft.make_draft(whole, LAYERS, [*range(whole.config.vocab_size)], 0.5)
        assert narrow.model.layers[0].mlp.down_proj.in_features == wide // 2
        torch.testing.assert_close(narrow(tokens).logits, whole(tokens).logits)


def test_weights_that_are_rounded_stay_when_they_are_rounded_again(made):
    """So what is exported of a checkpoint that `repetition` wrote is that checkpoint."""
    model = target.load_model(made.work / target.TARGET)
    weight = model.model.layers[0].mlp.up_proj.weight
    assert torch.equal(int4(weight, TINY.target.int4_group), weight)
    tuned = target.load_model(made.work / target.TUNED).model.layers[0].mlp.up_proj.weight
    assert not torch.equal(int4(tuned, TINY.target.int4_group), tuned)


def test_the_loss_is_least_where_the_draft_is_the_target():
    """Of a target with probabilities 0.7, 0.2 and 0.1 on what the draft knows."""
    tokens, probs = torch.tensor([[1, 2, 3]]), torch.tensor([[0.7, 0.2, 0.1]])

    def of(chances):
        return float(draft.acceptance_loss(torch.tensor([chances]).log(), tokens, probs, 0)[0])

    right = of([1e-6, 0.7, 0.2, 0.1])
    assert right < of([1e-6, 0.6, 0.3, 0.1]) < of([1e-6, 0.1, 0.2, 0.7])
    assert right < of([0.5, 0.35, 0.1, 0.05])


def test_stages_out_of_order_name_the_stage_to_run_first(made, tmp_path, capsys):
    given = ["--work", str(tmp_path), "--data", str(made.data)]
    for stage, first in (("target", "base"), ("repetition", "target"), ("answers", "repetition")):
        assert __main__.main([stage, *given]) == 2
        assert f"run python -m lab.training {first} first" in capsys.readouterr().err
    for stage in (draft, block):
        with pytest.raises(UserError, match="write the answers first"):
            stage.main(replace(made, work=tmp_path))


def test_the_time_of_an_interrupted_stage_counts(tmp_path):
    with pytest.raises(KeyboardInterrupt), timed(tmp_path / "work", "export"):
        raise KeyboardInterrupt
    assert read_lines(tmp_path / "work" / "stages.jsonl") == [{"stage": "export", "seconds": 0}]


@pytest.mark.parametrize("there", [False, True])
def test_a_model_that_is_not_there_or_another_is_one_clear_line(there, model, tmp_path):
    """`tests.test_gguf` has files that cannot be read."""
    file = model if there else tmp_path / "absent.gguf"
    recipe = replace(TINY, base_sha256="0" * 64)
    with pytest.raises(UserError, match=r"must be the file|--model") as caught:
        base.main(Command(tmp_path / "work", model=file, recipe=recipe))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "work" / base.BASE).exists()


def test_packed_records_lose_what_their_responses_lose_alone(made):
    tokens = target.load_tokenizer(made.work / base.BASE)
    prefix = tokens.shared_prefix
    sides = [
        (tokens.ask(record.instruction), tokens.encode(f"{record.response}\n\n{END_KEY}"))
        for record in corpus.training_records(made.data)
    ]
    examples = [packing.example(len(prefix), *side) for side in sides]
    (batch,) = packing.pack(examples, prefix, 448, rows=9, seed=0)
    assert batch.segments.max() > 1  # something is packed with something
    model = target.load_model(made.work / base.BASE).eval()
    loss = partial(torch.nn.functional.cross_entropy, reduction="sum")
    with torch.inference_mode():
        packed = loss(*target.packed_logits(model, batch)).item()
        alone = 0.0
        for prompt, response in sides:
            ids = torch.tensor([[*prompt, *response]])
            logits = model(ids).logits[0, len(prompt) - 1 : -1]
            alone += loss(logits, ids[0, len(prompt) :]).item()
    assert packed == pytest.approx(alone, rel=1e-4)


def test_a_full_disk_leaves_the_old_folder(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    (path / "weights").write_text("old")

    def write_too_much():
        with replacing_folder(path) as temporary:
            (temporary / "weights").write_text("ne")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(UserError, match="disk"):
        write_too_much()
    assert (path / "weights").read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]
