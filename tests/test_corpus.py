"""The texts that the embedded pair is made from, and those it is tested on."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from lab.training import corpus
from pipeline.errors import UserError
from tests.archives import write_archives


def test_held_out_records_and_their_questions_are_never_trained_on(tmp_path: Path) -> None:
    data = write_archives(tmp_path)
    (held,) = corpus.held_out(data)
    records = corpus.training_records(data)
    assert held.instruction == "What does a ant say?"
    assert len(records) == 8
    assert held.question not in {record.question for record in records}
    assert held.response not in {record.response for record in records}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "not there"),
        (b"no archive", "truncated or damaged"),
        (lzma.compress(b'{"id": 1}\n' * 500)[:-20], "line 1"),
        (lzma.compress(b"nonsense\n"), "line 1"),
        (lzma.compress(b"[1, 2]\n"), "line 1"),
        (lzma.compress(b'{"instruction": "", "context": "", "response": ""}\n'), "line 1"),
    ],
)
def test_bad_data_is_one_clear_line(content: bytes | None, says: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "dolly15k.jsonl.xz").write_bytes(content)
    with pytest.raises(UserError, match=says) as caught:
        corpus.dolly(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_truncated_archive_is_one_clear_line(tmp_path: Path) -> None:
    file = write_archives(tmp_path) / "dolly15k.jsonl.xz"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(UserError, match="truncated"):
        corpus.dolly(tmp_path)
