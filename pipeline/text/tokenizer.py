"""Tokenizers: text to token ids, and streamed token ids to text.

Supports byte-level BPE (GPT-2, GPT-NeoX and thus Dolly, Llama 3, Qwen), and SentencePiece models,
which mark blanks and fall back to bytes (Llama 2, Mistral).

It uses `tokenizers` directly, since `transformers` would import PyTorch if that is installed.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Mapping
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
_SAMPLE = (  # words, numbers, blanks, code, scripts and emoji, which tokenizers split differently
    "The 3 quick brown foxes can't jump 12,345 times over  the\tlazy dog!\n\n  def f(x):\n"
    "        return x**2 # naïve café, Ελληνικά, 日本語, עברית 🦊👩‍🚀 http://a.b/c?d=e ﬁ …"
)
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class Tokenizer:
    """A model's tokenizer and its prompt format.

    Args:
        folder: contains `tokenizer.json`, and perhaps a chat template.

    Attributes:
        vocab: the id of each token's text.
        size: one more than the largest id.
        end_ids: tokens that end an answer.
        format: "dolly" if Dolly's three added tokens exist; else "chat" if the model has a chat
            template; else "plain", text to be continued.

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
        """The ids of a text; with `special`, including those that the tokenizer adds around it."""
        return list(self._fast.encode(text, add_special_tokens=special).ids)

    def ask(self, instruction: str, context: str = "") -> list[int]:
        """The ids of the prompt, in the model's format.

        Raises:
            UserError: the chat template refuses the texts.
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
        """The ids with which all prompts begin."""
        pairs = zip(self.ask("a"), self.ask("Why?"), strict=False)
        return [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]

    def piece(self, token: int) -> str:
        """The text of a single token, for display; incomplete characters become �."""
        return self.token_bytes(token).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """The text of a single token in UTF-8, of which it may have only a part of a character."""
        return self._bytes[token] if token < self.size else b""

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens, without those that end an answer."""
        return "".join(map(self.detokenizer().push, tokens))

    def detokenizer(self) -> Detokenizer:
        return Detokenizer(self._bytes, self.end_ids)

    def _byte_table(self, byte_level: bool) -> list[bytes]:
        """The bytes of each token id; empty for ids without a token."""
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
    """Streams one sequence's text: `push` returns the whole characters that a token completes.

    The results, joined, are the text. A character that stays incomplete is left out.
    """

    def __init__(self, table: list[bytes], silent: frozenset[int]) -> None:
        self._table, self._silent = table, silent
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        if token in self._silent or token >= len(self._table):
            return ""
        return self._decoder.decode(self._table[token])


def shared_vocabulary(target: Tokenizer, draft: Tokenizer) -> int:
    """The number of the target's first ids that the draft may propose: those that both have.

    The draft may only lack tokens that were added to the target (Pythia for Dolly). Compared are
    the text of every id and the tokens of a sample text, not the sizes.

    Raises:
        UserError: names the first id that differs.
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
    """Dolly's end key, and the end tokens in the model's own files."""
    texts = (END_KEY, _EOS, special_tokens(folder).get("eos_token", ""))
    ends = {vocab[text] for text in texts if text in vocab}
    eos = read_json(folder / "generation_config.json").get("eos_token_id")
    return frozenset(ends | ({eos} if isinstance(eos, int) else set(eos or ())))


def _byte_alphabet() -> dict[str, int]:
    """The byte for each of GPT-2's printable characters."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}


_BYTE_OF = _byte_alphabet()
