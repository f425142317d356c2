"""A model with float32 weights: what an experiment compares the others with."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from experiments.result import Result
from pipeline.models.pairs import Model
from pipeline.models.store import Store

_XML, _BIN = "openvino_model.xml", "openvino_model.bin"


def unquantised(model: Model, store: Store) -> Generator[Result, None, Model]:
    """Returns the model in float32. A checkpoint is converted; the weights of an IR are unpacked,
    which changes their type and not their values.
    """
    if not store.fixed(model):
        return replace(model, weights="f32")
    source = store.folder(model)
    out = store.root / "unquantised" / f"{source.name}-{_digest(source)}"
    if not (out / _XML).is_file():
        yield Result(doing="unpacking the weights")
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as folder:
            made = Path(folder) / "new"
            _unpack(source, made)
            made.rename(out)
    return replace(model, id=str(out), weights="f32")


def _unpack(source: Path, out: Path) -> None:
    """Writes the IR of `source` with every weight in float32."""
    import openvino as ov
    from openvino.passes import ConstantFolding, Manager

    from pipeline.runtime.ir import read_model

    model, manager = read_model(source), Manager()
    manager.register_pass(ConstantFolding())  # constants and what unpacks them become constants
    manager.run_passes(model)
    others = shutil.ignore_patterns(_XML, _BIN)
    shutil.copytree(source, out, ignore=others)
    ov.save_model(model, out / _XML, compress_to_fp16=False)


def _digest(source: Path) -> str:
    """Of the IR's place and its size, so that a model that was replaced is unpacked again."""
    about = f"{source.resolve()} {(source / _BIN).stat().st_size}"
    return sha256(about.encode()).hexdigest()[:8]
