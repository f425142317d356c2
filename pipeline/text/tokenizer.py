"""Text to token ids, and token ids to text as they come.

Byte-level BPE (GPT-2, GPT-NeoX and so Dolly, Llama 3, Qwen), and SentencePiece's kind, which marks
blanks and falls back to bytes (Llama 2, Mistral).

Uses `tokenizers` directly: `transformers` would import torch wherever it is installed.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import Literal

from tokenizers import Tokenizer as FastTokenizer

from pipeline.errors import UserError
from pipeline.models.json_file import read_json
from pipeline.text.chat import find_template, special_tokens
from pipeline.text.prompt import ADDED_TOKENS, END_KEY, check_texts, format_prompt

PromptFormat = Literal["dolly", "chat", "plain"]

_EOS = "<|endoftext|>"
_BLANK = "▁"  # SentencePiece's
_SAMPLE = (  # words, numbers, blanks, code, scripts and emoji: what tokenizers cut differently
    "The 3 quick brown foxes can't jump 12,345 times over  the\tlazy dog!\n\n  def f(x):\n"
    "        return x**2 # naïve café, Ελληνικά, 日本語, עברית 🦊👩‍🚀 http://a.b/c?d=e ﬁ …"
)
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class Tokenizer:
    """A model's tokenizer, and how it wants to be asked.

    Args:
        folder: holds `tokenizer.json`, and perhaps a chat template.

    Attributes:
        vocab: the id of each piece.
        size: one more than the largest id.
        end_ids: tokens that end an answer.
        format: Dolly's if its three marks are single tokens; else the model's own chat template;
            else plain text, to be continued.

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
        about = json.loads(self._fast.to_str())
        self.merges: list[object] = about["model"].get("merges", [])
        self.vocab: dict[str, int] = self._fast.get_vocab(with_added_tokens=True)
        self.size: int = max(self.vocab.values()) + 1
        self.end_ids = _end_ids(folder, self.vocab)
        self._bytes = self._byte_table('"ByteLevel"' in json.dumps(about["decoder"]))
        self._template = find_template(folder)
        self.format: PromptFormat = "chat" if self._template else "plain"
        if self.vocab.keys() >= set(ADDED_TOKENS):
            self.format = "dolly"

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Its ids; `special`: with those that the tokenizer puts around a text."""
        return list(self._fast.encode(text, add_special_tokens=special).ids)

    def ask(self, instruction: str, context: str = "") -> list[int]:
        """The prompt's ids, in the model's format.

        Raises:
            UserError: its chat template does not take them.
        """
        instruction, context = check_texts(instruction, context)
        if self.format == "dolly":
            return self.encode(format_prompt(instruction, context))
        if self._template:
            return self.encode(self._template.render(instruction, context))
        text = f"{context}\n\n{instruction}" if context else instruction
        return self.encode(text, special=True) or [min(self.end_ids, default=0)]

    @property
    def shared_prefix(self) -> list[int]:
        """The ids that all prompts begin with."""
        pairs = zip(self.ask("a"), self.ask("Why?"), strict=False)
        return [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]

    def piece(self, token: int) -> str:
        """One token on its own, for showing; bytes that are no whole character become �."""
        return self._bytes[token].decode("utf-8", "replace") if token < self.size else ""

    def detokenizer(self) -> Detokenizer:
        return Detokenizer(self._bytes, self.end_ids)

    def _byte_table(self, byte_level: bool) -> list[bytes]:
        """The bytes of each token id. Ids that padding left without a token are empty."""
        table = [b""] * self.size
        for piece, token in self.vocab.items():
            if byte_level:
                table[token] = bytes(_BYTE_OF.get(char, 0) for char in piece)
            elif byte := _BYTE.fullmatch(piece):
                table[token] = bytes.fromhex(byte[1])
            else:
                table[token] = piece.replace(_BLANK, " ").encode()
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


def shared_vocabulary(target: Tokenizer, draft: Tokenizer) -> int:
    """How many of the target's first ids the draft may propose: all that both know.

    The draft may lack tokens that were added to the target (Pythia for Dolly), nothing else. What
    counts is the content, every id's piece and how a text is cut, and not the size.

    Raises:
        UserError: with the first id that differs.
    """
    remedy = "choose a draft whose tokenizer is the target's"
    pieces = {token: piece for piece, token in target.vocab.items()}
    for piece, token in sorted(draft.vocab.items(), key=lambda item: item[1]):
        if pieces.get(token) != piece:
            there = f"is {pieces[token]!r}" if token in pieces else "does not exist"
            remedy = f"in the target it {there}; {remedy}"
            raise UserError("draft tokenizer", f"id {token} is {piece!r}", remedy)
    for place, (one, other) in enumerate(
        zip_longest(target.encode(_SAMPLE), draft.encode(_SAMPLE), fillvalue=None)
    ):
        if one != other:
            cut = f"cuts a text otherwise: its id {place} is {other}, the target's {one}"
            raise UserError("draft tokenizer", cut, remedy)
    if draft.merges != target.merges:
        raise UserError("draft tokenizer", "joins pieces in another order", remedy)
    return draft.size


def _end_ids(folder: Path, vocab: Mapping[str, int]) -> frozenset[int]:
    """Dolly's end key, and whatever the model's own files say that ends a text."""
    texts = (END_KEY, _EOS, special_tokens(folder).get("eos_token", ""))
    ends = {vocab[text] for text in texts if text in vocab}
    said = read_json(folder / "generation_config.json").get("eos_token_id")
    return frozenset(ends | ({said} if isinstance(said, int) else set(said or ())))


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in for each byte, inverted."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}


_BYTE_OF = _byte_alphabet()
