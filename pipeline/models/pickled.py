"""Rewrites a checkpoint's pickled weights as safetensors, without running what is pickled.

Many checkpoints of 2023 have no others, `databricks/dolly-v2-12b` among them.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.errors import UserError, first_line
from pipeline.models.json_file import read_json
from pipeline.progress import Progress

PICKLED = "pytorch_model.bin"
PICKLED_INDEX = "pytorch_model.bin.index.json"
_INDEX = "model.safetensors.index.json"
_COPIED = (".json", ".jinja", ".py")  # of a checkpoint, beside its weights


def is_pickled(name: str) -> bool:
    """Whether a file of that name holds pickled weights of a checkpoint."""
    return name.startswith("pytorch_model") and name.endswith(".bin")


def pickled_files(folder: Path) -> list[str]:
    """The names of all files with a checkpoint's pickled weights, be they there or not."""
    index = read_json(folder / PICKLED_INDEX)
    return sorted(set(index["weight_map"].values())) if index else [PICKLED]


def write_safetensors(source: Path, out: Path, report: Callable[[Progress], None]) -> None:
    """Writes the checkpoint to `out` with safetensors, unless that was done since it last changed.

    One file of weights at a time is read into memory; those since PyTorch 1.6 are only mapped.

    Raises:
        UserError: the weights are damaged, or no plain tensors, or a file cannot be read or
            written.
    """
    from safetensors import SafetensorError

    names = pickled_files(source)
    made = out.with_name(f".{out.name}-{os.getpid()}")
    try:
        if out.is_dir():
            if all((source / name).stat().st_mtime <= out.stat().st_mtime for name in names):
                return
            shutil.rmtree(out)
        made.mkdir(parents=True)
        placed: dict[str, str] = {}
        for number, name in enumerate(names, 1):
            report(Progress("reading pickled weights", number - 1, len(names)))
            file = f"model-{number:05}-of-{len(names):05}.safetensors"
            placed |= dict.fromkeys(_rewrite(source / name, made / file), file)
        (made / _INDEX).write_text(json.dumps({"metadata": {}, "weight_map": placed}))
        for path in source.iterdir():
            if path.suffix in _COPIED and path.name != PICKLED_INDEX:
                shutil.copyfile(path, made / path.name)
        made.rename(out)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        remedy = f"could not be read or written ({reason})"
        raise UserError("file", str(getattr(error, "filename", None) or out), remedy) from None
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _rewrite(source: Path, out: Path) -> list[str]:
    """Rewrites one file; returns the names of its tensors."""
    import torch
    from safetensors.torch import save_file

    tensors: dict[str, Any] = {}
    try:
        with source.open("rb") as file:
            mapped = file.read(2) == b"PK"
        loaded = torch.load(source, map_location="cpu", mmap=mapped, weights_only=True)
        held: set[int] = set()
        for name, tensor in loaded.items():
            tensor = tensor.detach().contiguous()
            memory = tensor.untyped_storage().data_ptr()
            # safetensors writes no memory twice, and tied weights are one there.
            tensors[name] = tensor.clone() if memory in held else tensor
            held.add(memory)
    except pickle.UnpicklingError:
        remedy = f"its {source.name} is damaged or would run code; only plain tensors are read"
        raise UserError("model", str(source.parent), remedy) from None
    except (RuntimeError, EOFError, AttributeError, TypeError, ValueError, KeyError):
        remedy = f"its {source.name} is damaged; get it again"
        raise UserError("model", str(source.parent), remedy) from None
    save_file(tensors, out, metadata={"format": "pt"})
    return [*tensors]
