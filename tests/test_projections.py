"""Merged matrix products: fewer of them, and the same bits."""

import numpy as np
import openvino as ov
import pytest

from pipeline.models.export import export
from pipeline.models.pairs import EMBEDDED
from pipeline.runtime import model as runtime
from pipeline.runtime.ir import read_model
from pipeline.runtime.kv_cache.registry import DEFAULT_POLICY, FALLBACK_POLICY
from pipeline.runtime.model import OVModel, RuntimeOptions
from pipeline.runtime.projections import merge_projections
from tests.families import make_checkpoint

TOKENS = np.random.default_rng(0).integers(0, 300, 60).tolist()
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
    sequence.forward(TOKENS[:15], 0)
    for size in range(1, 10):
        found.append(sequence.forward(TOKENS[len(sequence) : len(sequence) + size], size).logits)
    return np.concatenate(found)


@pytest.mark.parametrize(("family", "weights"), KINDS)
def test_there_are_fewer_products_and_the_logits_have_the_same_bits(
    family, weights, folder, monkeypatch
):
    model = read_model(folder(family, weights))
    before = products(model)
    assert merge_projections(model, 1) == FEWER[family]
    assert before - products(model) == FEWER[family]

    merged = logits(OVModel(folder(family, weights)))
    monkeypatch.setattr(runtime, "merge_projections", lambda *given: 0)
    assert (merged == logits(OVModel(folder(family, weights)))).all()


@pytest.mark.parametrize(
    ("model", "kv_cache"),
    [("target", DEFAULT_POLICY), ("target", FALLBACK_POLICY), ("draft", DEFAULT_POLICY)],
)
def test_the_shipped_models_keep_their_logits(model, kv_cache, monkeypatch):
    merged = logits(OVModel(EMBEDDED / model, RuntimeOptions(kv_cache)))
    monkeypatch.setattr(runtime, "merge_projections", lambda *given: 0)
    assert (merged == logits(OVModel(EMBEDDED / model, RuntimeOptions(kv_cache)))).all()


@pytest.mark.parametrize(("name", "layers"), [("target", 30), ("draft", 2), ("block", 2)])
def test_each_layer_of_the_shipped_models_has_three_products_less(name, layers):
    """Query, key and value are one product, and so are gate and up."""
    model = read_model(EMBEDDED / name)
    before = products(model)
    assert merge_projections(model, 1) == before - products(model) == 3 * layers


def test_a_large_model_is_left_as_it_is(folder):
    model = read_model(folder("llama", "f32"))
    before = products(model)
    assert merge_projections(model, 2_000_000_000) == 0
    assert products(model) == before
