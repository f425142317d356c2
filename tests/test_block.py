"""The block draft: what its training reads, and its IR, against the model run plainly."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from lab.training import packing
from lab.training.block import BlockBatch, BlockDraft, make_batch, save_block, slot_weights
from lab.training.block_ir import export_block
from lab.training.draft import Rows
from lab.training.features import Features, FeatureWriter
from lab.training.generation import Text, unit
from lab.training.packing import PREFIX
from lab.training.recipe import Block
from pipeline.errors import UserError
from pipeline.runtime.block import OVBlockModel
from pipeline.runtime.kv_cache.registry import POLICIES
from pipeline.runtime.model import RuntimeOptions
from tests.tiny import tiny_folder

WIDTH, VOCABULARY, PACK = 16, 50, 24
BLOCK = Block(hidden=2, length=4, rank=3, anchors=5)
ROWS = Rows([*range(VOCABULARY)], np.arange(VOCABULARY), 0)


def draft() -> BlockDraft:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=True,
    )
    model = BlockDraft(LlamaForCausalLM(config), 2 * WIDTH, BLOCK)
    for weights in model.parameters():
        torch.nn.init.normal_(weights, std=0.3)
    with torch.no_grad():
        model.slots.weight[0] = 0
    return model.eval()


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Features:
    """Three texts with a prefix of 5 tokens: prompts of 8, 6 and 7, answers of 6, 4 and 9."""
    folder, rng = tmp_path_factory.mktemp("features"), np.random.default_rng(0)
    writer = FeatureWriter(folder, {"width": 2 * WIDTH, "top": 3})
    prefix, states = rng.integers(1, VOCABULARY, 5), rng.normal(size=(5, 2 * WIDTH))
    for number, (prompt, answer) in enumerate(((8, 6), (6, 4), (7, 9))):
        tokens = rng.integers(1, VOCABULARY, prompt + answer)
        tokens[:5], tokens[5] = prefix, number + 1
        hidden = rng.normal(size=(prompt + answer - 1, 2 * WIDTH)).astype(np.float16)
        hidden[:5] = states
        text = Text(number, tokens[:prompt].tolist(), tokens[prompt:].tolist(), [hidden])
        text.top_tokens = [*rng.integers(1, VOCABULARY, (answer, 3), dtype=np.int32)]
        text.top_probs = [*rng.random((answer, 3)).astype(np.float16)]
        writer.add(text, sample=0)
    return Features(folder)


def packed_batch(features: Features) -> tuple[packing.Batch, BlockBatch]:
    """All texts in two rows, and with their slots."""
    examples, prefix = features.examples(skipped=1)
    (packed,) = packing.pack(examples, prefix, PACK, rows=2, seed=0)
    return packed, make_batch(features, packed, ROWS, BLOCK, np.random.default_rng(1))


def test_packed_rows_and_their_slots_are_what_each_text_gives_alone(features: Features) -> None:
    """Without its first token, which was predicted from nothing and has no row."""
    model = draft()
    packed, batch = packed_batch(features)
    assert packed.segments.max() > 1  # something is packed with something
    with torch.inference_mode():
        got = model.rows(batch)
    slots, seen, first = batch.slots.numpy(), 0, dict[tuple[int, int], int]()
    for row, column in zip(*np.nonzero(packed.segments.numpy() > PREFIX), strict=True):
        first.setdefault((row, int(packed.segments[row, column])), int(packed.tokens[row, column]))
    for row, column in zip(*np.nonzero(batch.segments.numpy() > PREFIX), strict=True):
        slot = slots[row, column]
        begin = first[row, int(batch.segments[row, column])] - 5  # of the text
        at = begin + 1 + int(batch.positions[row, column]) - slot  # the token whose slot it is
        tokens = features.tokens[begin + 1 : at + 1].tolist()
        states = [*features.hidden[begin:at].astype(np.float32)]
        with torch.inference_mode():
            alone = plain(model, tokens, states, int(slot))
        torch.testing.assert_close(got[row, column], alone, rtol=1e-4, atol=1e-4)
        seen += slot > 0
    assert seen >= 20


def test_a_loss_is_where_the_target_wrote_and_knows_the_token_before(features: Features) -> None:
    packed, batch = packed_batch(features)
    length = batch.tokens.shape[1]
    rows = [(int(place) // length, int(place) % length) for place in batch.wanted]
    own = [packed.tokens[row, column].item() for row, column in rows if column < PACK]
    wrote = zip(features.begins + features.prompts - 1, features.ends - 1, strict=True)
    assert sorted(own) == [row for begin, end in wrote for row in range(begin, end)]
    for index, (row, column) in enumerate(rows):
        segment, position = batch.segments[row, column], batch.positions[row, column]
        same = (packed.segments[row] == segment) & (packed.positions[row] == position)
        text = packed.tokens[row, same].item()
        assert int(batch.previous[index]) == features.tokens[text]
        assert batch.top_tokens[index].tolist() == features.top_tokens[text].tolist()


def test_the_weight_of_a_slot_is_what_it_adds_to_the_accepted_tokens(features: Features) -> None:
    """By the definition, from the chances of the slots of each anchor, a text's end among them."""
    _, batch = packed_batch(features)
    count, length = batch.slots.shape
    passes = torch.rand(len(batch.wanted), generator=torch.Generator().manual_seed(0))
    chance = dict(zip(batch.wanted.tolist(), (0.5 + passes / 2).tolist(), strict=True))
    weight = dict(zip(batch.wanted.tolist(), slot_weights(passes, batch).tolist(), strict=True))
    firsts, short = [], 0
    for row in range(count):
        for number, anchor in enumerate(batch.anchors[row].tolist()):
            after = row * length + PACK + number * (BLOCK.length - 1)
            places = [row * length + anchor, *range(after, after + BLOCK.length - 1)]
            chances = [chance.get(place, 0.0) for place in places]
            short += 0.0 in chances[1:]
            for slot, place in enumerate(places):
                ends = range(slot + 1, len(places) + 1)
                if place in weight:
                    wanted = sum(np.prod(chances[:end]) for end in ends)
                    assert weight[place] == pytest.approx(wanted, rel=1e-5)
            firsts.append(weight.get(places[0], 0.0))
    others = set(weight) - {
        row * length + place for row in range(count) for place in batch.anchors[row].tolist()
    }
    rest = {weight[place] for place in others if place % length < PACK}
    assert short
    assert [*rest] == [pytest.approx(np.mean(firsts), rel=1e-5)]


def plain(model: BlockDraft, tokens: list[int], states: list[np.ndarray], slot: int) -> object:
    """The last row of a text and the slots of its last token, without packing."""
    count = len(tokens) + slot

    class Rows:
        pass

    rows = Rows()
    rows.tokens = torch.tensor([[*tokens, *[tokens[-1]] * slot]])
    rows.hidden = torch.from_numpy(np.array([[*states, *[states[-1]] * slot]]))
    rows.slots = torch.tensor([[*[0] * len(tokens), *range(1, slot + 1)]])
    rows.positions = torch.arange(count)[None]
    rows.mask = torch.ones(count, count, dtype=torch.bool).tril()[None, None]
    return model.rows(rows)[0, -1]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[BlockDraft, Path]:
    """A draft of every second token, and its IR."""
    work = tmp_path_factory.mktemp("block")
    model, ids = draft(), [*range(0, 2 * VOCABULARY, 2)]
    rows = Rows(ids, np.arange(2 * VOCABULARY) // 2, 0)
    save_block(model, rows, (0, 1), tiny_folder() / "target", work / "block")
    export_block(work / "block", work / "ir", "f32")
    return model, work / "ir"


@pytest.mark.parametrize("kv_cache", POLICIES)
def test_the_ir_computes_what_was_trained(exported: tuple[BlockDraft, Path], kv_cache: str) -> None:
    """For a prompt and two rounds, with slots that leave nothing in the cache."""
    model, folder = exported
    compiled, rng = OVBlockModel(folder, RuntimeOptions(kv_cache, "f32")), np.random.default_rng(3)
    sequence = compiled.block_draft(2 * VOCABULARY)
    rows = rng.integers(1, VOCABULARY, 12)
    tokens, hidden = (2 * rows).tolist(), rng.normal(size=(12, 2 * WIDTH)).astype(np.float32) * 5
    states = [*unit(hidden, 2).astype(np.float32)]
    read = 0
    for upto, length in ((7, 0), (9, 4), (12, 3)):
        logits = sequence.forward(tokens[read:upto], hidden[read:upto], length)
        assert len(sequence) == upto
        for slot, got in enumerate(logits):
            with torch.inference_mode():
                row = plain(model, rows[:upto].tolist(), states[:upto], slot)
                expected = model.causal_lm.lm_head(row)
                np.testing.assert_allclose(got, expected.numpy(), atol=2e-3)
                before = torch.tensor(int(rows[0]))
                after = expected + model.after(model.before(before))
            np.testing.assert_allclose(sequence.after(got, tokens[0]), after.numpy(), atol=2e-2)
        read = upto


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("bigram.npy", None, "missing or damaged"),
        ("bigram.npy", b"damaged", "missing or damaged"),
        ("bigram.npy", np.zeros((2, 3, 4)), "must be an array of 2 x 50"),
        ("config.json", {"block": None}, 'has no "block"'),
        ("config.json", {"hidden_layers": "none"}, "damaged config.json"),
        ("config.json", {"acceptance": [0.8, 8]}, "damaged config.json"),
    ],
)
def test_a_block_draft_that_is_damaged_is_refused(
    exported: tuple[BlockDraft, Path], tmp_path: Path, name: str, content: object, said: str
) -> None:
    folder = shutil.copytree(exported[1], tmp_path / "ir")
    file = folder / name
    if isinstance(content, dict):
        config = json.loads(file.read_text()) | content
        file.write_text(json.dumps({key: value for key, value in config.items() if value}))
    else:
        file.unlink()
        if isinstance(content, bytes):
            file.write_bytes(content)
        elif content is not None:
            np.save(file, content)
    with pytest.raises(UserError, match=said):
        OVBlockModel(folder)


def test_a_model_without_the_inputs_of_a_block_draft_is_refused(
    exported: tuple[BlockDraft, Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_folder() / "draft", tmp_path / "ir")
    config = json.loads((folder / "config.json").read_text())
    block = json.loads((exported[1] / "config.json").read_text())
    added = {name: block[name] for name in ("block", "hidden_layers", "bigram")}
    (folder / "config.json").write_text(json.dumps(config | added))
    with pytest.raises(UserError, match="lacks the inputs target_hidden and slots"):
        OVBlockModel(folder)
