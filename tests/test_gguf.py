"""A GGUF file as a model: converted once to the same model, with its own tokenizer, or one line."""

import json
import subprocess
import sys

import numpy as np
import pytest

from pipeline.errors import UserError
from pipeline.models.gguf_file import read_gguf
from pipeline.models.pairs import Model
from pipeline.models.store import Store
from pipeline.runtime.model import OVModel
from tests.tiny_gguf import vocabulary, write_gguf

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")


def test_the_program_races_a_file_alone_and_converts_it_once(file, tmp_path):
    """The answer memory drafts; PyTorch is not imported the second time."""
    command = ["-m", "pipeline", "What is in the house?", "--target", str(file), "--mode", "race"]
    command += ["--cache-dir", str(tmp_path), "--max-new-tokens", "8", "--drafter", "memory"]
    command += ["--json", str(tmp_path / "trace.json"), "--weights", "int4"]
    assert "reading the GGUF file" in ran(*command)
    trace = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    slow, fast = trace["lanes"].values()
    assert slow["text"] == fast["text"]
    assert trace["pair"]["draft"] is None
    assert trace["pair"]["target"]["id"].endswith("/tiny.gguf")
    assert {path.name for path in tmp_path.iterdir() if path.name.startswith(".")} == set()
    again = ran("-X", "importtime", *command)
    assert "reading the GGUF file" not in again
    assert " torch\n" not in again


def ran(*arguments):
    """What the program wrote to its second stream, after status 0."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stderr


def test_the_conversion_computes_what_the_file_does(file, tmp_path):
    store, model = Store(tmp_path), Model(str(file), "f32")
    for _ in store.obtain(model):
        pass
    read, tokenizer = read_gguf(file)
    tokens = tokenizer.encode("the house in a")
    sequence = OVModel(store.folder(model)).sequence(len(vocabulary()))
    found = sequence.forward(tokens, len(tokens)).logits
    expected = read(input_ids=tokenizer("the house in a", return_tensors="pt").input_ids).logits
    np.testing.assert_allclose(found, expected[0].detach().numpy(), atol=0.02)


def doubled():
    """Two tokens of the same text: a tokenizer reaches one of them only."""
    pieces = vocabulary()
    pieces[5] = pieces[6]
    return pieces


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        ("absent", "is not there; name a GGUF file"),
        ("no GGUF", "is no GGUF file"),
        ("truncated", r"cannot be read \(.*get it again"),
        ("another architecture", r"cannot be read \(.*get it again"),
        ("another tokenizer", "its tokenizer is not read as it is in the file"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line_and_leaves_nothing(damage, line, file, tmp_path):
    bad = tmp_path / "bad.gguf"
    match damage:
        case "no GGUF":
            bad.write_bytes(b"PK" + file.read_bytes())
        case "truncated":
            bad.write_bytes(file.read_bytes()[:5000])
        case "another architecture":
            write_gguf(bad, "gptj")
        case "another tokenizer":
            write_gguf(bad, pieces=doubled())
    store = Store(tmp_path / "cache")
    with pytest.raises(UserError, match=line) as caught:
        for _ in store.obtain(Model(str(bad), "int8")):
            pass
    assert "\n" not in str(caught.value)
    assert {path.name for path in store.root.iterdir()} <= {"locks"}
