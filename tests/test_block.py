"""The block draft: what its training reads, and its IR, against the model run plainly."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch (requirements-dev.txt)")

from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

from pipeline.errors import UserError  # noqa: E402
from pipeline.runtime.block import OVBlockModel  # noqa: E402
from pipeline.runtime.kv_cache.registry import POLICIES  # noqa: E402
from tests.tiny import tiny_folder  # noqa: E402
from training.block import BlockDraft, make_batch, save_block  # noqa: E402
from training.block_ir import export_block  # noqa: E402
from training.features import Features, unit  # noqa: E402
from training.packing import PADDING, PREFIX  # noqa: E402
from training.recipe import Block  # noqa: E402

WIDTH, VOCABULARY, PACK = 16, 50, 24
BLOCK = Block(layers=(), hidden_layers=(0, 1), length=4, rank=3, anchors=5)


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


def packed_rows() -> Features:
    """Two rows: a prefix of 4, then examples of 9 and 8, or one of 15; each answers at its end."""
    rng = np.random.default_rng(0)
    segments = np.full((2, PACK), PADDING)
    segments[:, :4] = PREFIX
    segments[0, 4:13], segments[0, 13:21], segments[1, 4:19] = 1, 2, 1
    positions = np.tile(np.arange(PACK), (2, 1))
    positions[0, 13:21] = np.arange(4, 12)
    wanted = np.zeros((2, PACK), bool)
    wanted[0, 7:13] = wanted[0, 18:21] = wanted[1, 9:19] = True
    tokens = rng.integers(1, VOCABULARY, (2, PACK))
    tokens[1, :4] = tokens[0, :4]
    hidden = rng.normal(size=(2, PACK, 2 * WIDTH)).astype(np.float16)
    hidden[1, :4] = hidden[0, :4]
    return Features(
        tokens,
        positions,
        segments,
        wanted,
        hidden,
        rng.integers(1, VOCABULARY, (2, PACK, 3), dtype=np.int32),
        rng.random((2, PACK, 3)).astype(np.float16),
    )


def test_packed_rows_and_their_slots_are_what_each_example_gives_alone() -> None:
    features, model = packed_rows(), draft()
    batch = make_batch(
        features, np.arange(2), np.arange(VOCABULARY), BLOCK, np.random.default_rng(1)
    )
    with torch.inference_mode():
        got = model.rows(batch)
    slots, seen = batch.slots.numpy(), 0
    for row, column in zip(*np.nonzero(batch.segments.numpy() > PREFIX), strict=True):
        slot = slots[row, column]
        segment = int(batch.segments[row, column])
        at = int(batch.positions[row, column]) - slot  # of the token whose slot it is
        mine = np.nonzero(features.segments[row] == segment)[0]
        places = [*range(4), *mine[mine <= mine[0] + at - 4]]
        tokens = [*features.tokens[row, places]]
        states = [*features.hidden[row, [0, *places[:-1]]].astype(np.float32)]
        with torch.inference_mode():
            alone = plain(model, tokens, states, int(slot))
        torch.testing.assert_close(got[row, column], alone, rtol=1e-4, atol=1e-4)
        seen += slot > 0
    assert seen >= 30


def test_a_loss_is_where_the_target_wrote_and_knows_the_token_before() -> None:
    features = packed_rows()
    batch = make_batch(
        features, np.array([1]), np.arange(VOCABULARY), BLOCK, np.random.default_rng(1)
    )
    length = batch.tokens.shape[1]
    own = [(int(place) // length, int(place) % length) for place in batch.wanted]
    assert [(r, c) for r, c in own if c < PACK] == [
        (0, at) for at in np.nonzero(features.wanted[1])[0]
    ]
    for index, (row, column) in enumerate(own):
        segment, position = batch.segments[row, column], batch.positions[row, column]
        (place,) = np.nonzero(
            (features.segments[1] == int(segment)) & (features.positions[1] == int(position))
        )[0]
        assert features.wanted[1, place]
        assert int(batch.previous[index]) == features.tokens[1, place]
        assert batch.top_tokens[index].tolist() == features.top_tokens[1, place].tolist()


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
    save_block(model, ids, tiny_folder() / "target", work / "block", BLOCK)
    export_block(work / "block", work / "ir", "f32")
    return model, work / "ir"


@pytest.mark.parametrize("kv_cache", POLICIES)
def test_the_ir_computes_what_was_trained(exported: tuple[BlockDraft, Path], kv_cache: str) -> None:
    """For a prompt and two rounds, with slots that leave nothing in the cache."""
    model, folder = exported
    compiled, rng = OVBlockModel(folder, kv_cache, "f32"), np.random.default_rng(3)
    sequence = compiled.block(2 * VOCABULARY)
    rows = rng.integers(1, VOCABULARY, 12)
    tokens, hidden = (2 * rows).tolist(), rng.normal(size=(12, 2 * WIDTH)).astype(np.float32) * 5
    states = torch.from_numpy(hidden).view(12, 2, WIDTH)
    states = [*unit(states).view(12, -1).numpy()]
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
