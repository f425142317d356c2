"""Reads a GGUF file, as llama.cpp runs it, as a checkpoint of transformers.

transformers dequantises the weights and makes the tokenizer, which is compared with the file's own.
It needs PyTorch and the package `gguf`, which are imported when a file is read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipeline.errors import UserError, first_line
from pipeline.models.export import require_packages

_SUFFIX, _MAGIC = ".gguf", b"GGUF"
_READERS = ("torch", "transformers", "gguf", "accelerate")
_UNUSED = 5  # type of a token that only pads the vocabulary


def named_gguf(name: str) -> bool:
    """Whether a model's name is that of such a file, be it there or not."""
    return name.lower().endswith(_SUFFIX)


def is_gguf(path: Path) -> bool:
    """Whether the path is that of such a file."""
    return named_gguf(path.name) and path.is_file()


def check_gguf(file: Path) -> None:
    """Raises UserError if it is no GGUF file, or a package to read it is missing."""
    require_packages(_READERS, file.name)
    with file.open("rb") as content:
        if content.read(len(_MAGIC)) != _MAGIC:
            raise UserError("model", str(file), "is no GGUF file; name one, or a folder")


def write_checkpoint(file: Path, out: Path) -> None:
    """Writes the model, in float16, and its tokenizer to the folder `out`.

    Raises:
        UserError: as `read_gguf`.
    """
    model, tokenizer = read_gguf(file)
    model.half().save_pretrained(out)
    tokenizer.save_pretrained(out)


def read_gguf(file: Path) -> tuple[Any, Any]:
    """The model in float32 and its tokenizer, both of transformers.

    Raises:
        UserError: it is no GGUF file, is damaged, of an architecture that transformers does not
            read, or its tokenizer does not come out as it is in the file.
    """
    check_gguf(file)
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    named = {"gguf_file": file.name, "local_files_only": True}
    try:
        tokenizer = AutoTokenizer.from_pretrained(file.parent, **named)
        differs = _difference(file, json.loads(tokenizer.backend_tokenizer.to_str()))
        model = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **named)
    except Exception as error:  # a truncated file raises nearly anything
        remedy = f"cannot be read ({first_line(error)}); get it again"
        raise UserError("model", str(file), remedy) from None
    if differs:
        remedy = f"its tokenizer is not read as it is in the file ({differs}); name a checkpoint"
        raise UserError("model", str(file), remedy)
    return model, tokenizer


def _difference(file: Path, tokenizer: dict[str, Any]) -> str:
    """What differs between the file's tokenizer and that of transformers; empty if nothing does.

    Args:
        tokenizer: the JSON of `tokenizers`.
    """
    from gguf import GGUFReader

    fields = GGUFReader(file).fields

    def field(name: str) -> list[Any]:
        found = fields.get(f"tokenizer.ggml.{name}")
        return [] if found is None else list(found.contents())

    pieces = dict(enumerate(field("tokens")))
    unused = {token for token, kind in enumerate(field("token_type")) if kind == _UNUSED}
    model = tokenizer["model"]
    read = {number: piece for piece, number in model["vocab"].items()}
    read |= {added["id"]: added["content"] for added in tokenizer["added_tokens"]}
    for token in sorted(pieces.keys() | read.keys()):
        if pieces.get(token) != read.get(token) and not (token in unused and token not in read):
            return f"token {token}: {read.get(token)!r} for {pieces.get(token)!r}"
    merges = [each if isinstance(each, str) else " ".join(each) for each in model["merges"]]
    if field("merges") and merges != field("merges"):
        return "its merges"
    return ""
