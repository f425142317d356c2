"""Stage `base`: Qwen2.5-Coder-0.5B-Instruct from its GGUF file, to be fine-tuned.

Qwen publishes the file as Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF (Apache-2.0); its SHA-256 is
checked. It becomes WORK/base, a checkpoint of transformers, with Dolly's three added tokens, and
with the tokens that the first merges of its byte-pair encoding make: later ones are mostly of other
scripts, and a forward pass reads the row of every token.
"""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

from lab.training.command import Command
from lab.training.files import replacing_folder, write_json
from pipeline.errors import UserError
from pipeline.models import gguf_file
from pipeline.text.prompt import END_KEY, INSTRUCTION_KEY, RESPONSE_KEY

BASE = "base"
_EOS = "<|endoftext|>"
# Dolly's token, and the text whose embedding it starts from.
_ADDED = ((END_KEY, "<|im_end|>"), (INSTRUCTION_KEY, INSTRUCTION_KEY), (RESPONSE_KEY, RESPONSE_KEY))


def main(command: Command) -> None:
    """Writes the checkpoint and its tokenizer to WORK/base."""
    merged = command.recipe.merged_tokens
    model, tokenizer = read_gguf(command.model, command.recipe.base_sha256)
    trimmed = trim_tokenizer(json.loads(tokenizer.to_str()), merged)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model.config.max_position_embeddings,
        "clean_up_tokenization_spaces": False,
        "eos_token": END_KEY,
    }
    with replacing_folder(command.work / BASE) as folder:
        trim_model(model, tokenizer, merged).save_pretrained(folder)
        write_json(folder / "tokenizer.json", trimmed)
        write_json(folder / "tokenizer_config.json", config)


def read_gguf(file: Path | None, sha256: str) -> tuple[Any, Any]:
    """The model in float32 and its tokenizer (of `tokenizers`); the file is checked.

    Args:
        sha256: of the file; empty for any.

    Raises:
        UserError: it is not there, another one, or cannot be read.
    """
    if file is None or not file.is_file():
        raise UserError("model", str(file or ""), "name the GGUF file with --model")
    with file.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if sha256 and found != sha256:
        raise UserError("model", f"{file.name}, SHA-256 {found}", f"must be the file {sha256}")
    model, tokenizer = gguf_file.read_gguf(file)
    # The file may hold the embedding apart from the head, where both were one before they were
    # quantised. The head's is the more precise.
    model.config.tie_word_embeddings = True
    model.get_input_embeddings().weight = model.get_output_embeddings().weight
    return model, tokenizer.backend_tokenizer


def trim_tokenizer(tokenizer: dict[str, Any], merged: int) -> dict[str, Any]:
    """A byte-level BPE tokenizer with its first tokens and the merges that make them.

    A prefix of the merges cuts a text as the whole list would, but for the tokens it lacks, which
    stay in parts. After the tokens come the end-of-text token and Dolly's three.

    Args:
        tokenizer: the JSON of `tokenizers`, whose ids are in the order of the merges.
        merged: tokens to keep, single bytes included.
    """
    made = copy.deepcopy(tokenizer)
    model = made["model"]
    vocab = {piece: number for piece, number in model["vocab"].items() if number < merged}
    merges = [merge for merge in model["merges"] if "".join(merge) in vocab]
    added = (_EOS, *(text for text, _ in _ADDED))
    numbers = {text: len(vocab) + place for place, text in enumerate(added)}
    model["vocab"], model["merges"] = vocab | numbers, merges
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    made["added_tokens"] = [
        {"id": number, "content": text, "special": True} | flags for text, number in numbers.items()
    ]
    return made


def trim_model(model: Any, tokenizer: Any, merged: int) -> Any:
    """The model with the rows of `trim_tokenizer`'s tokens.

    Args:
        tokenizer: the whole one.
    """
    import torch

    whole = model.get_output_embeddings().weight.detach()
    first = [number for number in tokenizer.get_vocab().values() if number < merged]
    added = [whole[tokenizer.encode(like).ids].mean(0) for _, like in _ADDED]
    rows = torch.stack([*whole[sorted(first)], whole[tokenizer.token_to_id(_EOS)], *added])
    config = copy.deepcopy(model.config)
    config.vocab_size, config.bos_token_id = len(rows), None
    config.eos_token_id = config.pad_token_id = len(first)
    weights = {
        name: rows if weight.shape[0] == len(whole) else weight
        for name, weight in model.state_dict().items()
    }
    trimmed = type(model)(config)
    trimmed.load_state_dict(weights)
    return trimmed
