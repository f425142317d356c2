"""What the drafts learn from: the target's answers, with what it computed on each of their tokens.

A folder with a file of a row for every token of every prompt and answer, one text after another,
which grows as texts are added, and an index with a line for each text. What an interruption left
without its line is written over. Training maps the file from disk, so it may exceed memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.training.files import add_line, read_json, read_lines, write_json
from lab.training.generation import Text
from lab.training.packing import IGNORED, Example
from pipeline.errors import UserError

FEATURES = "features"
_ROWS, _INDEX, _ABOUT = "rows.bin", "index.jsonl", "about.json"
_REMEDY = "delete its folder, and write the answers again"


class Features:
    """The texts of a folder, mapped from disk.

    Args:
        folder: written by a `FeatureWriter`.

    Attributes:
        begins, prompts, ends: int64[texts], the first row of each text, its number of prompt
            tokens, and the row after its last one.
        tokens: int32[rows].
        hidden: float16[rows, layers * width], the target's hidden states after a token, each
            layer's of unit root mean square.
        top_tokens, top_probs: int32 and float16[rows, top], the most likely tokens after a token
            where the target wrote the next one, and their probabilities.

    Raises:
        UserError: there are none.
    """

    def __init__(self, folder: Path) -> None:
        index = read_lines(folder / _INDEX)
        if not index:
            raise UserError("features", str(folder), "are not there; write the answers first")
        counts = np.array([text["tokens"] for text in index])
        self.ends: NDArray[np.int64] = counts.cumsum()
        self.begins: NDArray[np.int64] = self.ends - counts
        self.prompts: NDArray[np.int64] = np.array([text["prompt"] for text in index])
        row = _row(read_json(folder / _ABOUT, _REMEDY))
        rows = np.memmap(folder / _ROWS, row, "r", shape=int(self.ends[-1]))
        self.tokens: NDArray[np.int32] = rows["tokens"]
        self.hidden: NDArray[np.float16] = rows["hidden"]
        self.top_tokens: NDArray[np.int32] = rows["top_tokens"]
        self.top_probs: NDArray[np.float16] = rows["top_probs"]

    def likeliest(self) -> NDArray[np.int32]:
        """The target's first choice wherever it wrote."""
        spans = zip(self.begins + self.prompts - 1, self.ends - 1, strict=True)
        return np.concatenate([self.top_tokens[begin:end, 0] for begin, end in spans])

    def prompt_tokens(self) -> set[int]:
        """The tokens that all prompts have in common."""
        spans = zip(self.begins, self.begins + self.prompts, strict=True)
        return set.intersection(*(set(self.tokens[begin:end].tolist()) for begin, end in spans))

    def shared_prefix(self) -> int:
        """With how many tokens all prompts begin."""
        starts = self.tokens[self.begins[:, None] + np.arange(self.prompts.min() - 1)]
        return int((starts == starts[0]).all(0).cumprod().sum())

    def examples(self, skipped: int = 0) -> tuple[list[Example], range]:
        """Every text for `packing.pack`, and the prefix that all have in common. In place of tokens
        stand the numbers of their rows; a target is the row itself, where the target wrote the next
        token.

        Args:
            skipped: tokens at the beginning of every text that are left out.
        """
        prefix = max(skipped, self.shared_prefix())
        made = []
        for begin, prompt, end in zip(self.begins, self.prompts, self.ends, strict=True):
            rows = np.arange(begin + prefix, end - 1)
            made.append(Example(rows, np.where(rows >= begin + prompt - 1, rows, IGNORED)))
        return made, range(skipped, prefix)


class FeatureWriter:
    """Adds texts to a folder, which continues where it was interrupted.

    Args:
        folder: made if it is not there.
        about: all that shapes the texts, with "width" of the hidden states and "top" among it.

    Attributes:
        written: the keys of the texts that are there.

    Raises:
        UserError: the folder's texts were written with another `about`.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / _ABOUT).is_file():
            write_json(folder / _ABOUT, about)
        if read_json(folder / _ABOUT, _REMEDY) != json.loads(json.dumps(about)):
            remedy = "were written by another target or recipe; delete them, or name another --work"
            raise UserError("features", str(folder), remedy)
        index = read_lines(folder / _INDEX)
        self.written = {(text["sample"], text["number"]) for text in index}
        self._folder, self._row = folder, _row(about)
        self._rows = sum(text["tokens"] for text in index)

    def add(self, text: Text, sample: int) -> None:
        """Adds a text: the `sample`-th to its prompt."""
        tokens, prompt = [*text.prompt, *text.tokens], len(text.prompt)
        rows = np.zeros(len(tokens), self._row)
        rows["tokens"] = tokens
        rows["hidden"][:-1] = np.concatenate(text.hidden)
        rows["top_tokens"][prompt - 1 : -1] = text.top_tokens
        rows["top_probs"][prompt - 1 : -1] = text.top_probs
        path = self._folder / _ROWS
        with path.open("r+b" if path.exists() else "wb") as file:
            file.seek(self._rows * self._row.itemsize)
            file.write(rows.tobytes())
        line = {"sample": sample, "number": text.number, "prompt": prompt, "tokens": len(tokens)}
        add_line(self._folder / _INDEX, line)
        self._rows += len(tokens)


def _row(about: Mapping[str, Any]) -> np.dtype[Any]:
    """The type of a row."""
    top = (about["top"],)
    hidden = ("hidden", np.float16, (about["width"],))
    tops = [("top_tokens", np.int32, top), ("top_probs", np.float16, top)]
    return np.dtype([("tokens", np.int32), hidden, *tops])
