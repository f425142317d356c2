"""A model at another precision of its weights."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from lab.result import Result
from lab.study import Setup
from pipeline.models.export import INT4_GROUP
from pipeline.models.pairs import Model, Pair, Weights, folder_suffix
from pipeline.models.store import Store

if TYPE_CHECKING:
    import openvino as ov

_XML = "openvino_model.xml"
_NAMES: dict[str, Weights] = {"f32": "f32", "f16": "fp16", "INT8": "int8", "INT4": "int4"}


def in_precision(model: Model, weights: Weights, store: Store) -> Generator[Result, None, Model]:
    """Returns the model with its weights at that precision; yields what it does until then.

    A checkpoint is converted when the model is obtained. The weights of an IR are unpacked to
    float32, which changes their type and not their values, and compressed anew: so they are at best
    what they were in the IR.
    """
    if not store.fixed(model):
        return replace(model, weights=weights)
    source = store.folder(model)
    name = f"{source.parent.name}-{source.name}-{_digest(source)}--{folder_suffix(weights)}"
    out = store.root / "weights" / name
    if not (out / _XML).is_file():
        yield Result(doing=f"weights of {model.name} to {weights}")
        if _weights_of(source) == weights:
            return replace(model, weights=weights)
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as folder:
            made = Path(folder) / "new"
            shutil.copytree(source, made, ignore=shutil.ignore_patterns(_XML, "*.bin"))
            _save(_unpacked(source), weights, made / _XML)
            made.rename(out)
    return replace(model, id=str(out), weights=weights)


def pair_in_precision(
    setup: Setup, target: Weights, draft: Weights
) -> Generator[Result, None, Pair]:
    """Returns the chosen pair with the weights of both models at these precisions."""
    pair, store = setup.choice.pair, setup.choice.store
    return replace(
        pair,
        target=(yield from in_precision(pair.target, target, store)),
        draft=(yield from in_precision(pair.required_draft, draft, store)),
    )


def _weights_of(folder: Path) -> Weights | None:
    from pipeline.runtime.ir import count_weights, read_model

    return _NAMES.get(count_weights(read_model(folder))[1])


def _unpacked(folder: Path) -> ov.Model:
    """The model of an IR with every weight in float32."""
    from openvino.passes import ConstantFolding, Manager

    from pipeline.runtime.ir import read_model

    model, manager = read_model(folder), Manager()
    manager.register_pass(ConstantFolding())  # a constant and what unpacks it become one constant
    manager.run_passes(model)
    return model


def _save(model: ov.Model, weights: Weights, path: Path) -> None:
    """Writes a float32 model at that precision."""
    import openvino as ov

    if weights.startswith("int"):
        import nncf

        mode = nncf.CompressWeightsMode
        if weights == "int8":
            model = nncf.compress_weights(model, mode=mode.INT8_ASYM)
        else:
            int4 = mode.INT4_SYM if weights == "int4" else mode.INT4_ASYM
            model = nncf.compress_weights(model, mode=int4, group_size=INT4_GROUP)
    ov.save_model(model, path, compress_to_fp16=weights == "fp16")


def _digest(source: Path) -> str:
    """Of the IR's place and its size, so that a model that was replaced is unpacked again."""
    from pipeline.runtime.weight_files import weight_bytes

    about = f"{source.resolve()} {weight_bytes(source)}"
    return sha256(about.encode()).hexdigest()[:8]
