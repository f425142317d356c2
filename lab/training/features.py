"""What the drafts learn from: the target's answers, with what it computed on each of their tokens.

A folder of flat files with a row for every token of every prompt and answer, one text after
another, which grow as texts are added, and an index with a line for each text. What an interruption
left without its line is written over. Training maps the files from disk, so they may exceed memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.training.files import whole_lines
from lab.training.generation import Text
from lab.training.packing import IGNORED, Example
from pipeline.errors import UserError

FEATURES = "features"
_INDEX, _ABOUT = "index.jsonl", "about.json"


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
        index = _read_index(folder)
        if not index:
            raise UserError("features", str(folder), "are not there; write the answers first")
        counts = np.array([text["tokens"] for text in index])
        self.ends: NDArray[np.int64] = counts.cumsum()
        self.begins: NDArray[np.int64] = self.ends - counts
        self.prompts: NDArray[np.int64] = np.array([text["prompt"] for text in index])
        columns = _columns(_about(folder))
        rows = int(self.ends[-1])
        maps: dict[str, Any] = {
            name: np.memmap(folder / f"{name}.bin", kind, "r", shape=(rows, *shape))
            for name, (kind, shape) in columns.items()
        }
        self.tokens: NDArray[np.int32] = maps["tokens"]
        self.hidden: NDArray[np.float16] = maps["hidden"]
        self.top_tokens: NDArray[np.int32] = maps["top_tokens"]
        self.top_probs: NDArray[np.float16] = maps["top_probs"]

    @property
    def answered(self) -> int:
        """Tokens that the target wrote."""
        return int((self.ends - self.begins - self.prompts).sum())

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
        longest = int(self.prompts.min()) - 1
        first = self.tokens[: self.prompts[0]]
        for begin in self.begins:
            differs = np.flatnonzero(self.tokens[begin : begin + longest] != first[:longest])
            longest = int(differs[0]) if len(differs) else longest
        return longest

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
            (folder / _ABOUT).write_text(json.dumps(dict(about)), encoding="utf-8")
        if _about(folder) != json.loads(json.dumps(dict(about))):
            remedy = "were written by another target or recipe; delete them, or name another --work"
            raise UserError("features", str(folder), remedy)
        index = _read_index(folder)
        self.written = {(text["sample"], text["number"]) for text in index}
        self._folder, self._columns = folder, _columns(about)
        self._rows = sum(text["tokens"] for text in index)

    def add(self, text: Text, sample: int) -> None:
        """Adds a text: the `sample`-th to its prompt."""
        count, prompt = len(text.prompt) + len(text.tokens), len(text.prompt)
        rows: dict[str, Any] = {
            name: np.zeros((count, *shape), kind) for name, (kind, shape) in self._columns.items()
        }
        rows["tokens"][:] = [*text.prompt, *text.tokens]
        rows["hidden"][:-1] = np.concatenate(text.hidden)
        rows["top_tokens"][prompt - 1 : -1] = text.top_tokens
        rows["top_probs"][prompt - 1 : -1] = text.top_probs
        for name, (kind, shape) in self._columns.items():
            path = self._folder / f"{name}.bin"
            size = self._rows * np.dtype(kind).itemsize * int(np.prod(shape))
            with path.open("r+b" if path.exists() else "wb") as file:
                file.seek(size)
                file.write(rows[name].tobytes())
        line = {"sample": sample, "number": text.number, "prompt": prompt, "tokens": count}
        with (self._folder / _INDEX).open("a", encoding="utf-8") as index:
            index.write(json.dumps(line) + "\n")
        self._rows += count


def _read_index(folder: Path) -> list[dict[str, int]]:
    return [json.loads(line) for line in whole_lines(folder / _INDEX)]


def _about(folder: Path) -> Any:
    return json.loads((folder / _ABOUT).read_text(encoding="utf-8"))


def _columns(about: Mapping[str, Any]) -> dict[str, tuple[type, tuple[int, ...]]]:
    """The type of each file, and the shape of its rows."""
    return {
        "tokens": (np.int32, ()),
        "hidden": (np.float16, (about["width"],)),
        "top_tokens": (np.int32, (about["top"],)),
        "top_probs": (np.float16, (about["top"],)),
    }
