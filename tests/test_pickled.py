"""Checkpoints with pickled weights: the same model as from safetensors, and no code runs."""

import json
import os
import shutil

import pytest

from pipeline.errors import UserError
from pipeline.models.pairs import Model
from pipeline.models.store import Store
from tests.fake_hub import fake_hub

torch = pytest.importorskip("torch")

BIN = "pytorch_model.bin"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    from tests.families import make_checkpoint

    folder = tmp_path_factory.mktemp("checkpoint")
    make_checkpoint("gpt_neox", folder)
    return folder


@pytest.fixture
def store(tmp_path):
    with fake_hub() as hub:
        store = Store(tmp_path / "cache", hub.url)
        store.hub = hub
        yield store


@pytest.fixture
def folder(checkpoint, tmp_path):
    """A copy of the checkpoint without its weights."""
    left_out = shutil.ignore_patterns("*.safetensors")
    return shutil.copytree(checkpoint, tmp_path / "pickled", ignore=left_out)


def weights(checkpoint):
    from safetensors.torch import load_file

    return load_file(checkpoint / "model.safetensors")


def obtained(store, id):
    list(store.obtain(Model(id)))
    return (store.folder(Model(id)) / "openvino_model.bin").read_bytes()


def test_a_pickled_checkpoint_is_converted_to_the_same_model(store, checkpoint, folder):
    """Whole from the hub, and in shards, of which the older format is one, from a folder."""
    expected = obtained(store, str(checkpoint))
    pickled = weights(checkpoint)
    torch.save(pickled, folder / BIN)
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    store.hub.repositories["me/whole"] = files
    assert obtained(store, "me/whole") == expected
    (folder / BIN).unlink()
    names = sorted(pickled)
    shards = {"pytorch_model-1.bin": names[::2], "pytorch_model-2.bin": names[1::2]}
    for number, (file, held) in enumerate(shards.items()):
        part = {name: pickled[name] for name in held}
        torch.save(part, folder / file, _use_new_zipfile_serialization=bool(number))
    index = {"weight_map": {name: file for file, held in shards.items() for name in held}}
    (folder / f"{BIN}.index.json").write_text(json.dumps(index))
    assert obtained(store, str(folder)) == expected


class Hostile:
    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def truncated(path):
    path.write_bytes(path.read_bytes()[:-1000])


@pytest.mark.parametrize("modern", [True, False], ids=["zip", "before 1.6"])
@pytest.mark.parametrize("how", ["hostile", "truncated", "no tensors"])
def test_weights_that_are_no_tensors_are_one_line_and_run_nothing(
    store, checkpoint, folder, tmp_path, how, modern
):
    pickled = weights(checkpoint)
    if how == "hostile":
        pickled["embed"] = Hostile(tmp_path / "ran")
    elif how == "no tensors":
        pickled = [*pickled]
    torch.save(pickled, folder / BIN, _use_new_zipfile_serialization=modern)
    if how == "truncated":
        truncated(folder / BIN)
    with pytest.raises(UserError, match=f"{BIN} is damaged") as caught:
        obtained(store, str(folder))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "ran").exists()
    assert {path.name for path in store.root.iterdir()} <= {"locks"}


def test_tied_weights_are_written_twice_and_only_once_for_all_precisions(tmp_path):
    from safetensors.torch import load_file

    from pipeline.models.pickled import write_safetensors

    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    tied = torch.arange(6.0).reshape(2, 3)
    torch.save({"a": tied, "b": tied, "c": tied.T}, source / BIN)
    reports = []
    write_safetensors(source, out, reports.append)
    (file,) = out.glob("*.safetensors")
    assert {name: held.tolist() for name, held in load_file(file).items()} == {
        "a": tied.tolist(),
        "b": tied.tolist(),
        "c": tied.T.tolist(),
    }
    write_safetensors(source, out, reports.append)
    assert len(reports) == 1
    later = out.stat().st_mtime + 10
    os.utime(source / BIN, (later, later))
    write_safetensors(source, out, reports.append)
    assert len(reports) == 2
