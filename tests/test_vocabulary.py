"""A trimmed vocabulary: which tokens a draft's rows stand for."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import UserError
from pipeline.runtime.vocabulary import Vocabulary, read_vocabulary


@given(
    token_ids=st.sets(st.integers(0, 99), min_size=1).map(sorted),
    tokens=st.lists(st.integers(0, 99)),
    vocab_size=st.integers(0, 120),
)
def test_known_tokens_have_their_row_and_all_others_the_first(token_ids, tokens, vocab_size):
    vocabulary = Vocabulary(np.array(token_ids))
    for token, row in zip(tokens, vocabulary.rows(tokens), strict=True):
        assert token_ids[row] == token if token in token_ids else row == 0
    assert vocabulary.cut(vocab_size) == sum(token < vocab_size for token in token_ids)


def test_a_map_is_read_from_its_file(tmp_path: Path):
    path = tmp_path / "ids.json"
    path.write_text(json.dumps([0, 3, 7]))
    assert read_vocabulary(path, 3).rows([7, 5, 3]) == [2, 0, 1]


@pytest.mark.parametrize("content", ["", "{}", "[0, [1]]", "[0, 1.5, 2]", "[0, 2]", '["a", 1, 2]'])
def test_a_map_that_is_none_is_refused(tmp_path: Path, content: str):
    path = tmp_path / "ids.json"
    path.write_text(content)
    with pytest.raises(UserError, match="draft vocabulary"):
        read_vocabulary(path, 3)
