"""The texts that the embedded pair is made from, and those it is tested on."""

import lzma

import pytest

from lab import corpus
from pipeline.errors import UserError
from tests.archives import write_archives


def test_held_out_records_and_their_questions_are_never_trained_on(tmp_path):
    data = write_archives(tmp_path)
    (held,) = corpus.held_out(data)
    records = corpus.training_records(data)
    assert held.instruction == "What does a ant say?"
    assert len(records) == 8
    assert held.question not in {record.question for record in records}
    assert held.response not in {record.response for record in records}


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (None, "not there"),
        (b"no archive", "truncated or damaged"),
        (lzma.compress(b'{"id": 1, "instruction": "A"}\n' * 500)[:-20], "line 1"),
        (lzma.compress(b"nonsense\n"), "line 1"),
        (lzma.compress(b"[1, 2]\n"), "line 1"),
        (lzma.compress(b'{"instruction": "", "context": "", "response": ""}\n'), "line 1"),
    ],
)
def test_bad_data_is_one_clear_line(content, error, tmp_path):
    if content is not None:
        (tmp_path / "dolly15k.jsonl.xz").write_bytes(content)
    with pytest.raises(UserError, match=error) as caught:
        corpus.dolly(tmp_path)
    assert "\n" not in str(caught.value)
    file = write_archives(tmp_path) / "dolly15k.jsonl.xz"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(UserError, match="truncated"):
        corpus.dolly(tmp_path)


@pytest.mark.parametrize("content", [None, "", '{"question": "Why?"}', "{half"])
def test_a_bad_file_of_instructions_is_one_clear_line(content, tmp_path):
    if content is not None:
        (tmp_path / "asked.jsonl").write_text(content)
    with pytest.raises(UserError, match="instructions: ") as caught:
        corpus.own_instructions(tmp_path / "asked.jsonl")
    assert "\n" not in str(caught.value)
