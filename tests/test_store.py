"""Getting a model: from a folder, as a ready IR, or as a checkpoint that is converted; or one line.

The hub is a small one on this machine. What is converted is tiny, by the real exporter.
"""

import errno
import json
import shutil
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch

from pipeline.convert import main as convert
from pipeline.errors import UserError
from pipeline.models.export import check_weights, export
from pipeline.models.pairs import Model
from pipeline.models.store import Store
from pipeline.progress import Progress
from pipeline.runtime.ir import read_model
from pipeline.runtime.model import OVModel
from tests.fake_hub import fake_hub
from tests.families import make_checkpoint
from tests.lines import one_line
from tests.tiny import tiny_folder

IR_FILES = ("openvino_model.xml", "openvino_model.bin", "config.json", "tokenizer.json")


@pytest.fixture
def ready():
    """The folder of an IR."""
    return tiny_folder() / "draft"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    make_checkpoint("gpt_neox", folder)
    return folder


@pytest.fixture
def pickled(checkpoint, tmp_path):
    """The same checkpoint with pickled weights."""
    folder = shutil.copytree(checkpoint, tmp_path / "pickled")
    weights = folder / "model.safetensors"
    torch.save(safetensors.torch.load_file(weights), folder / "pytorch_model.bin")
    weights.unlink()
    return folder


@pytest.fixture
def hub():
    with fake_hub() as hub:
        yield hub


@pytest.fixture
def store(tmp_path, hub):
    return Store(tmp_path / "cache", hub.url)


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def obtain(store, model):
    return [*store.obtain(model)]


def names(store):
    """What is in its folder, but what the hub resumes from, and locks."""
    return {path.name for path in store.root.glob("*")} - {"hub", "locks"}


def test_a_folder_with_an_ir_is_there_already(store, ready):
    model = Model(str(ready))
    assert obtain(store, model) == []
    assert store.folder(model) == ready


def test_a_model_that_is_not_there_says_how_to_get_it(store):
    with pytest.raises(UserError, match=r"pipeline\.convert databricks/dolly-v2-3b --weights int8"):
        store.folder(Model("databricks/dolly-v2-3b"))


def test_a_ready_ir_is_preferred_to_a_conversion(store, hub, ready):
    """But not for a revision that was asked for."""
    hub.repositories["maker/mini"] = {"config.json": b"{}", "model.safetensors": b"x" * 1000}
    hub.repositories["OpenVINO/mini-int4-ov"] = contents(ready)
    with pytest.raises(UserError):  # it is no checkpoint
        obtain(store, Model("maker/mini@v1", "int4"))
    assert hub.asked
    assert not any("OpenVINO" in path for path in hub.asked)
    model = Model("maker/mini", "int4")
    progress = obtain(store, model)
    assert progress[-1].done == progress[-1].total > 200_000
    assert progress[-1].unit == "B"
    assert contents(store.folder(model)).keys() >= set(IR_FILES)
    OVModel(store.folder(model))
    assert not any("model.safetensors" in path for path in hub.asked)
    asked = len(hub.asked)
    assert obtain(store, model) == []
    assert len(hub.asked) == asked


def test_a_checkpoint_from_the_hub_is_converted_and_runs(store, hub, checkpoint, pickled, tmp_path):
    """Here one with pickled weights: the model is the same as from safetensors."""
    hub.repositories["me/tiny"] = contents(pickled)
    model = Model("me/tiny", "int8")
    stages = set()
    for step in store.obtain(model):
        stages.add(step.stage)
        if step.stage == "exporting layers":
            assert not list(store.root.glob(".*.log"))
    assert {"fetching", "reading pickled weights", "exporting layers", "saving"} <= stages
    lm, made = OVModel(store.folder(model)), contents(store.folder(model))
    assert lm.weights == "INT8"
    assert lm.sequence().forward([1, 2, 3], logits_to_keep=1).logits.shape == (1, 320)
    expected = contents(export(checkpoint, tmp_path / "ir"))
    for name in ("openvino_model.bin", "tokenizer.json"):
        assert made[name] == expected[name]


@pytest.mark.parametrize(
    ("weights", "kind"), [("f32", "f32"), ("fp16", "f16"), ("int4", "i4"), ("int4-asym", "u4")]
)
def test_a_checkpoint_is_converted_at_any_precision(checkpoint, tmp_path, weights, kind):
    """INT4 has no zero points unless asked for."""
    made = read_model(export(checkpoint, tmp_path / "ir", weights))
    constants = [node for node in made.get_ops() if node.get_type_name() == "Constant"]
    matrices = [node for node in constants if len(node.shape) > 1 and min(node.shape) > 1]
    types = {node: node.get_element_type().get_type_name() for node in constants}
    assert kind in {types[node] for node in matrices}
    four = [node for node in constants if types[node] in ("i4", "u4")]
    assert {types[node] for node in four} <= {kind}
    zero_points = [node for node in four if node.shape[-1] == 1]  # one for each group
    assert bool(zero_points) == (weights == "int4-asym")


def test_a_checkpoint_in_a_folder_that_changed_is_converted_again(
    store, checkpoint, tmp_path, quick
):
    mine = shutil.copytree(checkpoint, tmp_path / "mine")
    model = Model(str(mine))
    obtain(store, model)
    assert store.find(model)
    assert store.find(replace(model, weights="int4")) is None
    (mine / "model.safetensors").touch()
    assert store.find(model) is None
    assert obtain(store, model)
    assert store.find(model)


def test_an_earlier_asymmetric_conversion_is_not_taken_for_a_symmetric_one(store, ready):
    shutil.copytree(ready, store.root / "me--tiny--int4")
    assert store.find(Model("me/tiny", "int4")) is None
    shutil.copytree(ready, store.root / "me--tiny--int4-sym")
    assert store.find(Model("me/tiny", "int4")) == store.root / "me--tiny--int4-sym"


def test_a_conversion_that_is_stopped_leaves_nothing(store, pickled):
    work = store.obtain(Model(str(pickled)))
    next(work)
    work.close()
    assert not names(store)
    assert store.find(Model(str(pickled))) is None


@pytest.fixture
def quick(monkeypatch, ready):
    """A conversion that copies a finished model, after a first report. How often it was begun."""
    begun = []

    def converted(source, out, model):
        begun.append(model)
        yield Progress("exporting layers")
        shutil.copytree(ready, out, dirs_exist_ok=True, copy_function=shutil.copyfile)

    monkeypatch.setattr("pipeline.models.store._exported", converted)
    return begun


@pytest.mark.parametrize("stopped", [False, True])
def test_who_converts_a_model_that_another_process_converts_waits_for_it(
    store, checkpoint, quick, stopped
):
    """And converts it if that was stopped."""
    model = Model(str(checkpoint))
    first, second = (Store(store.root).obtain(model) for _ in range(2))
    next(first)
    assert next(second).stage == "waiting for another process"
    if stopped:
        first.close()
        assert [*second][-1].stage == "exporting layers"
    else:
        assert [*first] == []
        assert {step.stage for step in second} <= {"waiting for another process"}
    assert quick == [model] * (1 + stopped)
    assert store.find(model)


def test_what_a_killed_conversion_left_is_deleted_by_the_next(store, checkpoint, quick):
    model = Model(str(checkpoint))
    obtain(store, model)
    place = store.folder(model)
    left = place.rename(place.with_name(f".{place.name}-left"))
    assert store.find(model) is None
    obtain(store, model)
    assert not left.exists()
    assert names(store) == {place.name}


def test_a_download_that_breaks_off_leaves_nothing_and_goes_on_next_time(
    store, hub, ready, monkeypatch
):
    impatient = SimpleNamespace(**vars(time) | {"sleep": lambda seconds: None})
    monkeypatch.setattr("huggingface_hub.file_download.time", impatient)  # it tries five times
    hub.repositories["me/mine"] = contents(ready)
    hub.breaks = 100_000
    with pytest.raises(UserError, match="cannot be fetched"):
        obtain(store, Model("me/mine"))
    assert not names(store)
    hub.breaks = None
    obtain(store, Model("me/mine"))
    OVModel(store.folder(Model("me/mine")))


def shards(files):
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    files["model.safetensors.index.json"] = json.dumps(index).encode()
    files["model-1.safetensors"] = files.pop("model.safetensors")


def configured(text):
    return lambda files: files.update({"config.json": text})


SPOILED = {  # how, and what is said of it
    "no weights": (lambda files: files.pop("model.safetensors"), "model.safetensors"),
    "no pickle": (
        lambda files: files.update({"pytorch_model.bin": files.pop("model.safetensors")}),
        "damaged",  # which the process that converts says
    ),
    "a missing shard": (shards, "model-2.safetensors"),
    "code of its own": (
        configured(b'{"model_type": "gpt_neox", "auto_map": {"AutoModel": "modeling.Mine"}}'),
        "--remote-code",
    ),
    "no tokenizer": (lambda files: files.pop("tokenizer.json"), "tokenizer.json"),
    "no JSON": (configured(b"{"), "unreadable"),
    "no object": (configured(b"[]"), "unreadable"),
    "no model": (dict.clear, "config.json|checkpoint"),
}


@pytest.mark.parametrize("spoiled", SPOILED)
@pytest.mark.parametrize("where", ["hub", "folder"])
def test_a_checkpoint_that_cannot_be_used_is_one_line(
    store, hub, checkpoint, tmp_path, where, spoiled
):
    files, (spoil, says) = contents(checkpoint), SPOILED[spoiled]
    spoil(files)
    hub.repositories["me/spoiled"] = files
    folder = tmp_path / "spoiled"
    folder.mkdir()
    for file, body in files.items():
        (folder / file).write_bytes(body)
    with one_line(says):
        obtain(store, Model("me/spoiled" if where == "hub" else str(folder)))
    assert not names(store)
    assert not any(path.endswith(".safetensors") for path in hub.asked)


def reconfigured(checkpoint, folder, **changes):
    """A copy with another configuration."""
    shutil.copytree(checkpoint, folder)
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        (
            {"num_hidden_layers": 3},
            r"fit its config\.json \(12 missing, as gpt_neox\.layers",
        ),
        ({"num_hidden_layers": 1}, r"fit its config\.json \(12 too many, as gpt_neox\.lay"),
        ({"vocab_size": 400}, r"fit its config\.json \(2 of another shape, as embed_out"),
        ({"model_type": "nobody_knows"}, "nobody_knows|cannot be exported"),
    ],
)
def test_weights_that_do_not_fit_the_configuration_are_one_line_before_the_export(
    checkpoint, tmp_path, monkeypatch, capsys, changes, wrong
):
    monkeypatch.setattr(
        "optimum.intel.OVModelForCausalLM.from_pretrained",
        lambda *_, **__: pytest.fail("it is exported"),
    )
    spoiled = reconfigured(checkpoint, tmp_path / "spoiled", **changes)
    with one_line(wrong):
        export(spoiled, tmp_path / "ir")
    assert not (tmp_path / "ir").exists()


def test_the_command_converts_or_ends_with_status_2(checkpoint, tmp_path, capsys, quick):
    where = ["--cache-dir", str(tmp_path / "cache")]
    assert convert([str(checkpoint), *where]) == 0
    assert capsys.readouterr().out.startswith(str(tmp_path / "cache"))
    assert convert([str(checkpoint), *where, "--weights", "int3"]) == 2
    assert capsys.readouterr().err.startswith("weights: “int3” — choose f32, fp16, int8, int4")


def test_weights_that_are_tied_renamed_or_of_older_versions_fit(checkpoint, tmp_path):
    folder = reconfigured(checkpoint, tmp_path / "old", tie_word_embeddings=True)
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    del weights["embed_out.weight"]
    layer = "gpt_neox.layers.0.attention"
    for name in (f"{layer}.bias", f"{layer}.masked_bias", f"{layer}.rotary_emb.inv_freq"):
        weights[name] = weights["gpt_neox.final_layer_norm.bias"].clone()
    index = {"weight_map": {name: f"{name}.safetensors" for name in weights}}
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for name, weight in weights.items():
        file = folder / f"{name}.safetensors"
        renamed = {name.removeprefix("gpt_neox."): weight}
        safetensors.torch.save_file(renamed, file, {"format": "pt"})
    check_weights(folder)


def test_without_what_converts_nothing_is_fetched_in_vain(store, hub, checkpoint, monkeypatch):
    monkeypatch.setattr("pipeline.models.export.find_spec", lambda name: name != "nncf" or None)
    hub.repositories["me/mine"] = contents(checkpoint)
    with pytest.raises(UserError, match=r"needs nncf; .*requirements\.txt"):
        obtain(store, Model("me/mine"))
    assert not any(path.endswith(".safetensors") for path in hub.asked)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nobody/nothing", "not on the hub"),
        ("me/gated", "gated"),
        ("no such folder", "neither a folder nor a name"),
        ("../nowhere/at/all", "neither a folder nor a name"),
        ("", "neither a folder nor a name"),
        ("a\0b", "neither a folder nor a name"),
        ("databricks/dolly-v2-3b", "does not answer"),
    ],
)
def test_a_model_that_cannot_be_had_is_one_line(store, hub, name, says, ready):
    if says == "does not answer":
        store = Store(store.root, "http://127.0.0.1:9")
    hub.repositories["me/gated"] = contents(ready)
    hub.gated.add("me/gated")
    with one_line(says):
        obtain(store, Model(name))
    assert not names(store)


def test_a_disk_without_room_is_one_line_before_anything_is_fetched(store, hub, monkeypatch, ready):
    hub.repositories["me/mine"] = contents(ready)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))
    with pytest.raises(UserError, match="free space"):
        obtain(store, Model("me/mine"))
    assert not any("resolve" in path for path in hub.asked)
    assert not names(store)


FAILED = RuntimeError("basic_ios::clear: iostream error")  # as OpenVINO says it


@pytest.mark.parametrize(
    ("error", "free", "name", "reason"),
    [
        (PermissionError(errno.EACCES, "Not allowed", "a.bin"), 10**9, "a.bin", "Not allowed"),
        (OSError("no file of weights\nin the folder"), 10**9, "", "no file of weights"),
        (OSError(), 10**9, "", "OSError"),
        (FAILED, 4096, "", "No space left on device"),
        (FAILED, 10**9, None, ""),
    ],
)
def test_the_file_or_the_full_disk_that_ends_an_export_is_named_in_one_line(
    checkpoint, tmp_path, monkeypatch, error, free, name, reason
):
    def failing(*_):
        raise error

    monkeypatch.setattr("pipeline.models.export._export", failing)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, free))
    with pytest.raises((UserError, RuntimeError)) as caught:
        export(checkpoint, tmp_path / "ir")
    assert list(tmp_path.iterdir()) == []
    if name is None:  # not the user's to mend
        assert caught.value is FAILED
        return
    said = caught.value
    assert (said.field, said.value) == ("file", name or str(tmp_path / "ir"))
    assert said.remedy == f"could not be read or written ({reason})"
    assert "\n" not in str(said)


def test_at_the_moment_when_a_model_is_in_its_place_nothing_is_beside_it(
    checkpoint, tmp_path, monkeypatch
):
    def written(source, out, *_):
        out.mkdir()
        (out / "openvino_model.xml").touch()

    monkeypatch.setattr("pipeline.models.export._export", written)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)  # as if it was killed then
    out = tmp_path / "ir"
    export(checkpoint, out)
    assert list(tmp_path.iterdir()) == [out]


def test_a_cache_folder_that_cannot_be_is_one_line(hub, checkpoint, tmp_path, ready):
    (tmp_path / "file").write_text("no folder")
    store = Store(tmp_path / "file" / "cache", hub.url)
    for model in (Model(str(checkpoint)), Model("OpenVINO/tiny")):
        hub.repositories["OpenVINO/tiny"] = contents(ready)
        with one_line(r"^file: “/.*--cache-dir"):
            obtain(store, model)
