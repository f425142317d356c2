"""Text to token ids, and token ids to text as they come, for GPT-NeoX's byte-level BPE.

Uses `tokenizers` directly: `transformers` would import torch wherever it is installed.
"""

from __future__ import annotations

import codecs
import json
from pathlib import Path

from tokenizers import Tokenizer as FastTokenizer

from pipeline.errors import UserError
from pipeline.prompt import ADDED_TOKENS, END_KEY

_EOS = "<|endoftext|>"


class Tokenizer:
    """Dolly's tokenizer: a byte-level BPE with three single added tokens.

    Args:
        folder: holds `tokenizer.json`.

    Raises:
        UserError: the file is missing or unreadable.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise UserError("model", str(folder), "add its tokenizer.json, or convert it again")
        try:
            self._fast = FastTokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises bare Exceptions
            raise UserError("model", str(path), f"replace the unreadable file ({error})") from None
        self.merges: list[object] = json.loads(self._fast.to_str())["model"].get("merges", [])
        self.vocab: dict[str, int] = self._fast.get_vocab(with_added_tokens=True)
        self.size: int = max(self.vocab.values()) + 1
        self.end_ids = frozenset(self.vocab[t] for t in (END_KEY, _EOS) if t in self.vocab)
        self._bytes = self._byte_table()

    def require_dolly_tokens(self) -> None:
        """Raises UserError unless the end key and Dolly's other marks are single tokens."""
        missing = [token.strip() for token in ADDED_TOKENS if token not in self.vocab]
        if missing:
            raise UserError(
                "tokenizer", ", ".join(missing), "choose a Dolly target: these must be tokens"
            )

    def encode(self, text: str) -> list[int]:
        return list(self._fast.encode(text, add_special_tokens=False).ids)

    def piece(self, token: int) -> str:
        """One token on its own, for showing; bytes that are no whole character become �."""
        return self._bytes[token].decode("utf-8", "replace") if token < self.size else ""

    def detokenizer(self) -> Detokenizer:
        return Detokenizer(self._bytes, self.end_ids)

    def _byte_table(self) -> list[bytes]:
        """The bytes of each token id. Ids that padding left without a token are empty."""
        table = [b""] * self.size
        for piece, token in self.vocab.items():
            table[token] = bytes(_BYTE_OF.get(char, 0) for char in piece)
        for token, added in self._fast.get_added_tokens_decoder().items():
            table[token] = added.content.encode()
        return table


class Detokenizer:
    """Streams one sequence's text: `push` a token, get the whole characters it completes.

    A character whose bytes never all arrive is never shown. The pieces join to the text.
    """

    def __init__(self, table: list[bytes], silent: frozenset[int]) -> None:
        self._table, self._silent = table, silent
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        if token in self._silent or token >= len(self._table):
            return ""
        return self._decoder.decode(self._table[token])


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in for each byte, inverted."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}


_BYTE_OF = _byte_alphabet()
