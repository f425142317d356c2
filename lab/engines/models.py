"""A pair in the forms that other engines read: a draft with the whole vocabulary, and GGUF files.

`for_peers` needs torch, to export the draft again. Knows files and weights, no engine.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lab.engines.unpacked import unpacked
from pipeline.models.json_file import read_json
from pipeline.models.pairs import EMBEDDED
from pipeline.runtime.ir import read_config
from pipeline.runtime.vocabulary import Vocabulary

TARGET_GGUF, DRAFT_GGUF = "target.gguf", "draft.gguf"


@dataclass(frozen=True, slots=True)
class Models:
    """One pair.

    Attributes:
        target, draft: as IRs.
        block: the block draft, for drafters that run one; None without.
        full_draft: the draft as an IR with the target's whole vocabulary, all that other engines
            take; None if `draft` is one.
        gguf: folder with both as GGUF files, llama.cpp's; None if there are none.
    """

    target: Path
    draft: Path
    block: Path | None = None
    full_draft: Path | None = None
    gguf: Path | None = None

    @property
    def differences(self) -> list[str]:
        """A line on each model that other engines run in another form than this project."""
        notes = []
        if self.full_draft:
            notes.append(
                "The draft has a trimmed vocabulary, which no other engine takes. Theirs is the "
                "same draft with a row for each token of the target: it proposes the same tokens, "
                "and a step of it reads a longer head."
            )
        if self.gguf:
            notes.append(
                "llama.cpp runs 4-bit matrices as Q4_1, with the same values, and 8-bit ones as "
                "Q8_0, the nearest that it has."
            )
        return notes


EMBEDDED_MODELS = Models(EMBEDDED / "target", EMBEDDED / "draft", EMBEDDED / "block")


def for_peers(models: Models, folder: Path) -> Models:
    """`models` with what other engines need, written to `folder`: a draft with the whole
    vocabulary where its own is trimmed, and GGUF files where the architecture is Llama's.
    """
    vocabulary = read_config(models.draft).vocabulary
    if vocabulary:
        size = read_config(models.target).vocab_size
        models = replace(models, full_draft=_export(models.draft, vocabulary, size, folder))
    if read_config(models.target).family == "llama":
        from lab.engines.gguf_file import write_gguf  # loads gguf

        write_gguf(models.target, folder / TARGET_GGUF)
        write_gguf(models.full_draft or models.draft, folder / DRAFT_GGUF)
        models = replace(models, gguf=folder)
    return models


def with_vocabulary(model: Any, vocabulary: Vocabulary, size: int) -> Any:
    """A draft of transformers with a row for each of `size` token ids instead of its own.

    Tokens that it lacked get the row that it reads them as. It proposes what it did before, and
    its head is as long as the target's.
    """
    rows = vocabulary.rows(range(size))
    layers = model.get_input_embeddings, model.get_output_embeddings
    weights = [layer().weight.data[rows] for layer in layers]
    model.resize_token_embeddings(size, mean_resizing=False)
    for layer, weight in zip(layers, weights, strict=True):
        layer().weight.data.copy_(weight)
    return model


def _export(draft: Path, vocabulary: Vocabulary, size: int, folder: Path) -> Path:
    from pipeline.models.export import export  # loads torch

    checkpoint = folder / "checkpoint"
    model = with_vocabulary(unpacked(draft), vocabulary, size)
    del model.config.target_ids
    model.save_pretrained(checkpoint)
    shutil.copyfile(draft / "tokenizer.json", checkpoint / "tokenizer.json")
    assert "target_ids" not in read_json(checkpoint / "config.json")
    return export(checkpoint, folder / "draft", "int8")
