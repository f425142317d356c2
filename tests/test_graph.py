"""A model's graph: hidden states beside the logits, merged products, a trimmed vocabulary."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import UserError
from pipeline.models.export import export
from pipeline.models.pairs import EMBEDDED
from pipeline.runtime import model as runtime
from pipeline.runtime.ir import read_model
from pipeline.runtime.kv_cache.registry import DEFAULT_POLICY, FALLBACK_POLICY, POLICIES
from pipeline.runtime.model import OVModel, RuntimeOptions
from pipeline.runtime.projections import merge_projections
from pipeline.runtime.vocabulary import Vocabulary, read_vocabulary
from tests.families import make_checkpoint
from tests.tiny import WIDTH, tiny_folder

TOKENS = np.random.default_rng(0).integers(0, 999, 200).tolist()
# Tokens of a forward pass, and what it is padded to: a prompt of two chunks, then decoding.
PASSES = ((150, 0), *((size, 0) for size in range(1, 9)), (3, 9), (1, 4), (2, 0))


@cache
def hidden_model(hidden_layers, kv_cache=DEFAULT_POLICY):
    return OVModel(tiny_folder() / "target", RuntimeOptions(kv_cache), hidden_layers)


def outputs(hidden_model):
    sequence, read = hidden_model.sequence(), 0
    for size, pad_to in PASSES:
        yield sequence.forward(TOKENS[read : read + size], min(size, 9), pad_to)
        read += size


@pytest.mark.parametrize("kv_cache", POLICIES)
def test_hidden_states_leave_the_logits_as_they_are(kv_cache):
    both, neither = hidden_model((0, 2), kv_cache), hidden_model((), kv_cache)
    for (size, _), got, plain in zip(PASSES, outputs(both), outputs(neither), strict=True):
        assert (got.logits == plain.logits).all()
        assert got.hidden.shape == (size, 2 * WIDTH)
        assert got.hidden.dtype == np.float32
        assert plain.hidden is None


def test_hidden_states_have_the_same_bits_for_every_size_of_a_forward_pass():
    lm = hidden_model((2,))
    alone = lm.sequence()
    alone.forward(TOKENS[:30], 0)
    singles = np.concatenate([alone.forward([token], 1).hidden for token in TOKENS[30:66]])
    for size in (2, 4, 9):
        together = lm.sequence()
        together.forward(TOKENS[:30], 0)
        hidden = [together.forward(TOKENS[at : at + size], 1).hidden for at in range(30, 66, size)]
        assert (np.concatenate(hidden) == singles).all()


def test_a_prompt_without_logits_still_has_its_hidden_states():
    sequence = hidden_model((2,)).sequence()
    assert sequence.forward([], 0).hidden.shape == (0, WIDTH)
    logits, hidden = sequence.forward(TOKENS[:40], 0)
    assert logits.shape == (0, sequence.vocab_size)
    assert hidden.shape == (40, WIDTH)
    kept = hidden.copy()
    sequence.forward(TOKENS[40:80], 0)
    assert (hidden == kept).all()  # the caller's to keep
    assert sequence.forward([], 0).hidden.shape == (0, WIDTH)


def test_a_sequence_returns_the_hidden_states_of_a_shared_prefix_with_its_first():
    lm = OVModel(tiny_folder() / "target", hidden_layers=(2,))
    whole = lm.sequence().forward(TOKENS[:20], 0).hidden
    lm.share_prefix(TOKENS[:10])
    sequence = lm.sequence(prompt=TOKENS[:20])
    assert len(sequence) == 10
    hidden = np.concatenate([sequence.forward(TOKENS[at : at + 5], 0).hidden for at in (10, 15)])
    np.testing.assert_allclose(hidden, whole, rtol=0, atol=0.01 * np.ptp(whole))


@pytest.mark.parametrize("layer", [-1, 99])
def test_a_layer_that_a_model_does_not_have_is_one_line(layer):
    with pytest.raises(UserError, match=rf"^hidden layer: {layer} — choose from 0 to \d+\.$"):
        OVModel(tiny_folder() / "target", hidden_layers=(0, layer))


TEXT = np.random.default_rng(0).integers(0, 300, 60).tolist()
# Of two layers each: query, key and value become one, and gate and up; in phi, where the MLP reads
# what attention reads, query, key, value and up.
FEWER = {"llama": 6, "phi": 6, "gpt2": 0}
KINDS = [("llama", "f32"), ("llama", "int8"), ("llama", "int4"), ("phi", "int8"), ("gpt2", "int8")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = {}

    def folder(family, weights):
        if (family, weights) not in made:
            checkpoint = tmp_path_factory.mktemp(family)
            make_checkpoint(family, checkpoint)
            made[family, weights] = checkpoint / weights
            export(checkpoint, made[family, weights], weights)
        return made[family, weights]

    return folder


def products(model: ov.Model) -> int:
    return sum(node.get_type_name() == "MatMul" for node in model.get_ordered_ops())


def logits(model: OVModel) -> np.ndarray:
    """After a prompt and after every size of a pass."""
    sequence, found = model.sequence(), []
    sequence.forward(TEXT[:15], 0)
    for size in range(1, 10):
        found.append(sequence.forward(TEXT[len(sequence) : len(sequence) + size], size).logits)
    return np.concatenate(found)


@pytest.mark.parametrize(("family", "weights"), KINDS)
def test_there_are_fewer_products_and_the_logits_have_the_same_bits(
    family, weights, folder, monkeypatch
):
    model = read_model(folder(family, weights))
    before = products(model)
    merge_projections(model, 1)
    assert before - products(model) == FEWER[family]

    merged = logits(OVModel(folder(family, weights)))
    monkeypatch.setattr(runtime, "merge_projections", lambda *given: 0)
    assert (merged == logits(OVModel(folder(family, weights)))).all()


@pytest.mark.parametrize(
    ("model", "kv_cache"), [("target", DEFAULT_POLICY), ("draft", FALLBACK_POLICY)]
)
def test_the_shipped_models_keep_their_logits(model, kv_cache, monkeypatch):
    merged = logits(OVModel(EMBEDDED / model, RuntimeOptions(kv_cache)))
    monkeypatch.setattr(runtime, "merge_projections", lambda *given: 0)
    assert (merged == logits(OVModel(EMBEDDED / model, RuntimeOptions(kv_cache)))).all()


@pytest.mark.parametrize("name", ["target", "draft", "block"])
def test_each_layer_of_the_shipped_models_has_three_products_less(name):
    """Query, key and value are one product, and so are gate and up."""
    model = read_model(EMBEDDED / name)
    layers = json.loads((EMBEDDED / name / "config.json").read_text())["num_hidden_layers"]
    before = products(model)
    merge_projections(model, 1)
    assert before - products(model) == 3 * layers


@given(
    token_ids=st.sets(st.integers(0, 99), min_size=1).map(sorted),
    tokens=st.lists(st.integers(0, 99)),
    vocab_size=st.integers(0, 120),
)
def test_known_tokens_have_their_row_and_all_others_the_first(token_ids, tokens, vocab_size):
    vocabulary = Vocabulary(np.array(token_ids))
    for token, row in zip(tokens, vocabulary.rows(tokens), strict=True):
        assert token_ids[row] == token if token in token_ids else row == 0
    assert vocabulary.cut(vocab_size) == sum(token < vocab_size for token in token_ids)


@pytest.mark.parametrize("content", ["", "{}", "[0, [1]]", "[0, 1.5, 2]", "[0, 2]", '["a", 1, 2]'])
def test_a_map_that_is_none_is_refused(tmp_path: Path, content: str):
    path = tmp_path / "ids.json"
    path.write_text(content)
    with pytest.raises(UserError, match="draft vocabulary"):
        read_vocabulary(path, 3)
