"""Exports a transformers checkpoint in a folder to an OpenVINO IR.

optimum-intel exports it and NNCF compresses the weights. It needs PyTorch, as nothing else in this
package does; PyTorch is imported when an export starts.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

from pipeline.errors import UserError, first_line
from pipeline.models.json_file import read_json
from pipeline.models.pairs import Weights
from pipeline.models.pickled import PICKLED, PICKLED_INDEX, pickled_files
from pipeline.progress import Progress

Report = Callable[[Progress], None]

_XML, _CONFIG = "openvino_model.xml", "config.json"
_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
# Copied unchanged: loading and saving a tokenizer could change it.
_KEPT = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
    "target_ids.json",  # of a draft with a trimmed vocabulary
)
_FULL = 2**20  # bytes that are left on a disk when a write has failed for want of room
INT4_GROUP = 64  # weights that share a scale; the usual 128 does not divide every hidden size
_COMPRESSION: dict[Weights, dict[str, Any]] = {
    "int8": {"bits": 8},
    "int4": {"bits": 4, "group_size": INT4_GROUP, "sym": True},
    "int4-asym": {"bits": 4, "group_size": INT4_GROUP, "sym": False},
}
_CONVERTS = ("torch", "transformers", "optimum", "nncf")  # serving needs none
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")


def check_checkpoint(
    folder: Path, remote_code: bool = False, files: Collection[str] | None = None
) -> None:
    """Checks that a checkpoint can be exported, before the weights are fetched.

    Args:
        folder: of the checkpoint; its JSON files are present.
        remote_code: whether its own code may run.
        files: the names of all its files, if not all are in the folder yet.

    Raises:
        UserError: the configuration, the tokenizer or weights are missing, it needs its own code,
            which is not allowed, or a package for the conversion is missing.
    """
    files = {file.name for file in folder.iterdir()} if files is None else {*files}
    require_packages(_CONVERTS, str(folder))
    config = read_json(folder / _CONFIG)
    if "model_type" not in config:
        raise UserError("model", str(folder), "is no model: add its config.json")
    if "tokenizer.json" not in files:
        raise UserError("model", str(folder), "has no tokenizer.json; add it")
    if "auto_map" in config and not remote_code:
        remedy = "brings code of its own; if you trust it, allow it with --remote-code"
        raise UserError("model", str(folder), remedy)
    index = read_json(folder / _INDEX)
    wanted = sorted(set(index["weight_map"].values())) if index else [_WEIGHTS]
    if not index and _WEIGHTS not in files and files & {PICKLED, PICKLED_INDEX}:
        wanted = pickled_files(folder)
    if missing := [name for name in wanted if name not in files]:
        raise UserError("model", str(folder), f"lacks {', '.join(missing)}; add what is missing")


def require_packages(packages: Iterable[str], model: str) -> None:
    """Raises UserError if one that a model's conversion needs is not installed."""
    for package in packages:
        if find_spec(package) is None:
            remedy = f"needs {package}; add it with: pip install -r requirements.txt"
            raise UserError("conversion", model, remedy)


def check_weights(folder: Path, remote_code: bool = False) -> None:
    """Checks that the weights of a checkpoint are those that its configuration describes. Of the
    weights, only names and shapes are read.

    transformers starts what is missing with random numbers and ignores what is too many; it also
    knows which names are tied, renamed, or left from older versions.

    Args:
        folder: of the checkpoint.
        remote_code: whether its own code may run.

    Raises:
        UserError: weights are missing, too many or of other shapes.
        ValueError, KeyError, NotImplementedError: transformers does not know the model.
    """
    import torch
    from safetensors import safe_open
    from transformers import AutoConfig, AutoModelForCausalLM

    options = {"trust_remote_code": remote_code}
    config = AutoConfig.from_pretrained(folder, local_files_only=True, **options)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, **options)
    number = torch.zeros((), dtype=torch.float16)  # which every weight repeats, without memory
    weights: dict[str, Any] = {}
    single = (folder / _WEIGHTS).is_file()  # transformers prefers it, too
    names = [_WEIGHTS] if single else {*read_json(folder / _INDEX)["weight_map"].values()}
    for name in names:
        with safe_open(folder / name, "pt") as file:  # type: ignore[no-untyped-call]
            for key in file.keys():  # noqa: SIM118  # it is no mapping
                weights[key] = number.expand(file.get_slice(key).get_shape())
    _, found = type(model).from_pretrained(
        None,
        config=config,
        state_dict=weights,
        dtype=number.dtype,
        ignore_mismatched_sizes=True,
        output_loading_info=True,
    )
    wrong = {
        "missing": found["missing_keys"],
        "too many": found["unexpected_keys"],
        "of another shape": {name for name, *_ in found["mismatched_keys"]},
    }
    parts = [f"{len(keys)} {how}, as {min(keys)}" for how, keys in wrong.items() if keys]
    if parts:
        remedy = f"its weights do not fit its {_CONFIG} ({'; '.join(parts)}); correct that, or get"
        raise UserError("model", str(folder), f"{remedy} the checkpoint again")


def export(
    source: Path,
    out: Path,
    weights: Weights = "int8",
    report: Report = lambda _: None,
    remote_code: bool = False,
) -> Path:
    """Writes the IR, its configuration and its tokenizer to `out`; returns `out`.

    The model is stateful, in optimum-intel's sense. INT8 is per output channel, INT4 in groups of
    64 with embedding and head at INT8: symmetric, or ("int4-asym") with a zero point for each
    group, which is closer to the checkpoint and slower. `out` is written under a temporary name
    first, and replaces an earlier export only when it is complete.

    Args:
        source: the folder of the checkpoint.
        out: the folder of the IR.
        weights: the precision to which NNCF compresses the weights; "f32" keeps them.
        report: receives the progress of the export.
        remote_code: whether the checkpoint's own code may run.

    Raises:
        UserError: the checkpoint cannot be exported, PyTorch is not installed, `out` is not an
            earlier export, or a file cannot be read or written.
    """
    if weights not in get_args(Weights):
        raise UserError("weights", weights, f"choose {', '.join(get_args(Weights))}")
    if out.exists() and not (out / _XML).is_file() and (out.is_file() or any(out.iterdir())):
        raise UserError("output", str(out), "is not a converted model; name a new folder")
    check_checkpoint(source, remote_code)
    made, old = (out.with_name(f".{out.name}-{os.getpid()}{end}") for end in ("", "-old"))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            _export(source, made, weights, report, remote_code)
        except RuntimeError:  # OpenVINO's, which does not say why
            if shutil.disk_usage(out.parent).free > _FULL:
                raise
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
        if out.exists():
            out.rename(old)
        made.rename(out)
    except OSError as error:
        remedy = f"could not be read or written ({error.strerror or first_line(error)})"
        raise UserError("file", str(error.filename or out), remedy) from None
    finally:
        for left in (made, old):
            shutil.rmtree(left, ignore_errors=True)
    return out


def _export(source: Path, out: Path, weights: Weights, report: Report, remote_code: bool) -> None:
    import openvino as ov
    from optimum.intel import OVModelForCausalLM, OVWeightQuantizationConfig

    compression: dict[str, Any] = {"load_in_8bit": False}
    if weights in _COMPRESSION:
        bits = OVWeightQuantizationConfig(**_COMPRESSION[weights])
        compression = {"quantization_config": bits}
    config = read_json(source / _CONFIG)
    layers = next((config[name] for name in _LAYERS if name in config), 0)
    with _layers_reported(layers, report):
        try:
            check_weights(source, remote_code)
            model = OVModelForCausalLM.from_pretrained(
                source,
                export=True,
                stateful=True,
                compile=False,
                local_files_only=True,
                trust_remote_code=remote_code,
                **compression,
            )
        except (ValueError, KeyError, NotImplementedError) as error:
            remedy = f"cannot be exported ({first_line(error)})"
            raise UserError("model", str(source), remedy) from None
    report(Progress("saving"))
    model.save_pretrained(out)
    if weights == "fp16":
        ov.save_model(model.model, out / _XML, compress_to_fp16=True)
    for name in _KEPT:
        if (source / name).is_file():
            shutil.copyfile(source / name, out / name)


@contextmanager
def _layers_reported(total: int, report: Report) -> Iterator[None]:
    """Within the context, reports each layer of the model that PyTorch traces."""
    from torch.nn.modules.module import register_module_forward_pre_hook

    done = 0

    def entered(module: Any, _: object) -> None:
        nonlocal done
        if type(module).__name__.endswith(("Layer", "Block")) and done < total:
            done += 1
            report(Progress("exporting layers", done, total))

    hook = register_module_forward_pre_hook(entered)
    try:
        yield
    finally:
        hook.remove()
