"""Checkpoints with pickled weights: rewritten as they are, and no code runs.

`test_store` converts one that comes from the hub.
"""

import json
import os

import pytest
import torch
from safetensors.torch import load_file

from pipeline.errors import UserError
from pipeline.models.pickled import write_safetensors

BIN = "pytorch_model.bin"
TIED = torch.arange(6.0).reshape(2, 3)
WEIGHTS = {"a": TIED, "b": TIED, "c": TIED.T, "d": torch.ones(50_000, dtype=torch.float16)}
FORMATS = pytest.mark.parametrize("modern", [True, False], ids=["zip", "before 1.6"])


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def save(weights, path, modern=True):
    torch.save(weights, path, _use_new_zipfile_serialization=modern)


def written(folder):
    """The weights that an index names, each from its file."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    return {name: load_file(folder / file)[name] for name, file in index["weight_map"].items()}


@FORMATS
@pytest.mark.parametrize("shards", [["abcd"], ["ad", "bc"]])
def test_weights_are_rewritten_as_they_are_tied_ones_twice(source, tmp_path, shards, modern):
    names = [f"pytorch_model-{number}.bin" for number in range(len(shards))]
    placed = {name: file for file, held in zip(names, shards, strict=True) for name in held}
    if len(shards) == 1:
        save(WEIGHTS, source / BIN, modern)
    else:
        for file, held in zip(names, shards, strict=True):
            save({name: WEIGHTS[name] for name in held}, source / file, modern)
        (source / f"{BIN}.index.json").write_text(json.dumps({"weight_map": placed}))
    write_safetensors(source, tmp_path / "out", lambda _: None)
    found = written(tmp_path / "out")
    assert found.keys() == WEIGHTS.keys()
    assert all(torch.equal(found[name], weight) for name, weight in WEIGHTS.items())
    assert (tmp_path / "out" / "config.json").is_file()


class Hostile:
    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


@FORMATS
@pytest.mark.parametrize("how", ["hostile", "truncated", "no tensors"])
def test_weights_that_are_no_tensors_are_one_line_and_run_nothing(source, tmp_path, how, modern):
    weights = {**WEIGHTS, "e": Hostile(tmp_path / "ran")} if how == "hostile" else WEIGHTS
    save([*weights] if how == "no tensors" else weights, source / BIN, modern)
    if how == "truncated":
        whole = (source / BIN).read_bytes()
        (source / BIN).write_bytes(whole[:-1000])
    with pytest.raises(UserError, match=f"{BIN} is damaged") as caught:
        write_safetensors(source, tmp_path / "out", lambda _: None)
    assert "\n" not in str(caught.value)
    assert [*tmp_path.iterdir()] == [source]  # no code ran, and nothing half-made is left


def test_they_are_written_once_for_all_precisions_until_they_change(source, tmp_path):
    save(WEIGHTS, source / BIN)
    out, reports = tmp_path / "out", []
    for _ in range(2):
        write_safetensors(source, out, reports.append)
    assert len(reports) == 1
    later = out.stat().st_mtime + 10
    os.utime(source / BIN, (later, later))
    write_safetensors(source, out, reports.append)
    assert len(reports) == 2
