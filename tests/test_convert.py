"""Conversion: what a user can get wrong, and that what comes out runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.convert import convert
from pipeline.errors import UserError


def test_unknown_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="int8"):
        convert(tmp_path, tmp_path / "out", "int3")  # type: ignore[arg-type]


def test_a_model_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(UserError, match="GPT-NeoX"):
        convert(tmp_path, tmp_path / "out")


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt_neox"}))
    with pytest.raises(UserError, match=r"tokenizer\.json"):
        convert(tmp_path, tmp_path / "out")


def test_a_folder_of_something_else_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="not a converted model"):
        convert("databricks/dolly-v2-3b", tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize("source", ["no such folder", "../nowhere/at/all", ""])
def test_a_source_that_is_neither_folder_nor_hub_name_is_one_clear_line(
    source: str, tmp_path: Path
) -> None:
    pytest.importorskip("huggingface_hub")
    with pytest.raises(UserError) as caught:
        convert(source, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
