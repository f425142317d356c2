"""A GGUF file as a model: converted once to the same model, with its own tokenizer, or one line."""

import json
import subprocess
import sys

import numpy as np
import pytest

from pipeline.models.gguf_file import read_gguf
from pipeline.models.pairs import Model
from pipeline.models.store import Store
from pipeline.runtime.model import OVModel
from tests.lines import one_line
from tests.tiny_gguf import vocabulary, write_gguf


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")


def test_a_conversion_computes_what_the_file_does_and_is_raced_alone(file, tmp_path):
    """The answer memory drafts. The file is not read again, and PyTorch is not imported."""
    store, model = Store(tmp_path), Model(str(file), "f32")
    assert "reading the GGUF file" in {step.stage for step in store.obtain(model)}
    read, tokenizer = read_gguf(file)
    tokens = tokenizer.encode("the house in a")
    sequence = OVModel(store.folder(model)).sequence(len(vocabulary()))
    found = sequence.forward(tokens, len(tokens)).logits
    expected = read(input_ids=tokenizer("the house in a", return_tensors="pt").input_ids).logits
    np.testing.assert_allclose(found, expected[0].detach().numpy(), atol=0.02)

    command = ["-X", "importtime", "-m", "pipeline", "What is in the house?", "--drafter", "memory"]
    command += ["--target", str(file), "--weights", "f32", "--cache-dir", str(tmp_path)]
    command += ["--max-new-tokens", "8", "--json", str(tmp_path / "trace.json")]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "reading the GGUF file" not in done.stderr
    assert " torch\n" not in done.stderr
    trace = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    slow, fast = trace["lanes"].values()
    assert slow["text"] == fast["text"]
    assert trace["pair"]["draft"] is None
    assert trace["pair"]["target"]["id"].endswith("/tiny.gguf")


UNREADABLE = r"cannot be read \(.*get it again"


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        ("truncated", UNREADABLE),
        ("another architecture", UNREADABLE),
        ("another tokenizer", "its tokenizer is not read as it is in the file"),
    ],
)
def test_a_file_that_is_read_as_no_model_is_one_line(damage, line, file, tmp_path):
    bad = tmp_path / "bad.gguf"
    match damage:
        case "truncated":
            bad.write_bytes(file.read_bytes()[:5000])
        case "another architecture":
            write_gguf(bad, "gptj")
        case "another tokenizer":
            _, second, *others = vocabulary()
            write_gguf(bad, pieces=[second, second, *others])  # of which one is reached
    with one_line(line):
        read_gguf(bad)


def test_what_is_no_file_of_this_kind_is_one_line_before_a_process_converts_it(file, tmp_path):
    store, bad = Store(tmp_path / "cache"), tmp_path / "bad.gguf"
    for line in ("is not there; name a GGUF file", "is no GGUF file"):
        with one_line(line):
            list(store.obtain(Model(str(bad))))
        bad.write_bytes(b"PK" + file.read_bytes())
