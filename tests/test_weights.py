"""A model at another precision of its weights."""

import numpy as np
import pytest

from lab.weights import in_precision
from pipeline.models.pairs import Model
from pipeline.models.store import Store
from pipeline.runtime.ir import count_weights, read_model
from pipeline.runtime.model import OVModel, RuntimeOptions
from tests.tiny import tiny_folder

PROMPT = [5, 9, 300, 12, 40, 41]


def made(model, weights, store):
    """The model, and what was done for it."""
    steps, done = in_precision(model, weights, store), []
    while True:
        try:
            done.append(next(steps).doing)
        except StopIteration as end:
            return end.value, done


def logits(folder):
    exact = {"DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    model = OVModel(folder, RuntimeOptions(kv_precision="f32", properties=exact))
    return model.sequence().forward(PROMPT, len(PROMPT)).logits


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def test_unpacked_weights_are_float32_with_the_same_values(store):
    source = tiny_folder() / "target"  # in INT8
    model, done = made(Model(str(source)), "f32", store)
    assert done == ["weights of tiny/target to f32"]
    folder = store.folder(model)
    assert count_weights(read_model(folder))[1] == "f32"
    assert not [n for n in read_model(folder).get_ops() if n.get_type_name() == "Subtract"]
    assert (folder / "tokenizer.json").is_file()
    np.testing.assert_allclose(logits(folder), logits(source), rtol=0.02, atol=0.02)


@pytest.mark.parametrize(
    ("weights", "kind"), [("fp16", "f16"), ("int4", "i4"), ("int4-asym", "u4")]
)
def test_unpacked_weights_are_compressed_anew(store, weights, kind):
    model, _ = made(Model(str(tiny_folder() / "target")), weights, store)
    assert model.weights == weights
    kinds = {
        node.get_element_type().get_type_name()
        for node in read_model(store.folder(model)).get_ops()
        if node.get_type_name() == "Constant" and len(node.shape) > 1 and min(node.shape) > 1
    }
    assert kind in kinds


def test_an_ir_at_this_precision_stays_as_it_is(store):
    source = Model(str(tiny_folder() / "target"))
    model, _ = made(source, "int8", store)
    assert store.folder(model) == tiny_folder() / "target"


def test_a_checkpoint_is_left_to_be_converted_to_this_precision(store):
    model, done = made(Model("databricks/dolly-v2-3b", "int8"), "f32", store)
    assert (model, done) == (Model("databricks/dolly-v2-3b", "f32"), [])
