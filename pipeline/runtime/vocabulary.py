"""`Vocabulary`: the tokens that a draft model with a trimmed embedding has rows for.

A draft step reads the whole embedding to compute its logits, and most of a large vocabulary is
hardly ever written (VocabTrim, arXiv 2506.22694). Such a draft has a row for the commonest tokens
only. It reads any other token as one of its rows, and never proposes one. Its `config.json` names
the file with the map, "target_ids": a JSON list with the target's token id of each row, ascending;
and the row for other tokens, "unknown_row": 0 if it names none.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError


class Vocabulary:
    """Rows of a model and the token ids that they stand for.

    Args:
        token_ids: int64[rows], ascending.
        unknown: the row that tokens without one are read as.
    """

    def __init__(self, token_ids: NDArray[np.int64], unknown: int = 0) -> None:
        self.token_ids, self._unknown = token_ids, unknown
        self._row_of = {token: row for row, token in enumerate(token_ids.tolist())}

    def rows(self, tokens: Sequence[int]) -> list[int]:
        """The row that each token is read as."""
        return [self._row_of.get(token, self._unknown) for token in tokens]

    def cut(self, vocab_size: int) -> int:
        """How many rows stand for one of the first `vocab_size` token ids."""
        return int(np.searchsorted(self.token_ids, vocab_size))


def read_vocabulary(path: Path, rows: int, unknown: int = 0) -> Vocabulary:
    """The map in a file, for a model of so many rows, of which `unknown` is for other tokens.

    Raises:
        UserError: the file is missing or damaged, or the map does not fit the model.
    """
    try:
        token_ids = np.array(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        remedy = "is missing or damaged; copy it again from where the draft was made"
        raise UserError("draft vocabulary", str(path), remedy) from None
    if token_ids.shape != (rows,) or token_ids.dtype.kind != "i":
        remedy = f"must list a token id for each of the model's {rows} rows"
        raise UserError("draft vocabulary", str(path), remedy)
    if token_ids[0] < 0 or (np.diff(token_ids) <= 0).any():
        raise UserError("draft vocabulary", str(path), "must list distinct token ids, ascending")
    if not 0 <= unknown < rows:
        remedy = f"unknown_row {unknown} must be one of the model's {rows} rows"
        raise UserError("draft vocabulary", str(path), remedy)
    return Vocabulary(token_ids.astype(np.int64), unknown)
