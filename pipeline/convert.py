"""A GPT-NeoX model of transformers, from a folder or the hub, as an OpenVINO IR.

`python -m pipeline.convert databricks/dolly-v2-3b models/dolly-v2-3b-int8`

Exported by optimum-intel, weights compressed by NNCF. Needs torch, which nothing else in this
package does; it is imported when a conversion starts.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal, get_args

from pipeline.errors import UserError

Weights = Literal["f32", "int8", "int4"]

_XML = "openvino_model.xml"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
_INT4_GROUP = 64  # weights that share a scale; divides the width of every GPT-NeoX here


def convert(source: str | Path, out: Path, weights: Weights = "int8") -> Path:
    """Writes the IR, its configuration and its tokenizer to `out`; returns `out`.

    The model keeps its past in its own states (optimum's "stateful"). INT8 is per output channel,
    INT4 in groups of 64 with embedding and head at INT8. `out` is made whole under another name
    first, and replaces an earlier conversion only then.

    Args:
        source: a folder with a transformers model, or its name on the Hugging Face hub.
        out: the folder to make.
        weights: what NNCF stores the weights as; "f32" leaves them.

    Raises:
        UserError: the source cannot be found or is no GPT-NeoX, `out` is something else than an
            earlier conversion, or the disk is full.
    """
    if weights not in get_args(Weights):
        raise UserError("weights", weights, f"choose {', '.join(get_args(Weights))}")
    if out.exists() and not (out / _XML).is_file() and (out.is_file() or any(out.iterdir())):
        raise UserError("output", str(out), "is not a converted model; name a new folder")
    tokenizer_files = _find_tokenizer(source)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as folder:
            made = Path(folder) / "new"
            _export(source, made, weights)
            for file in tokenizer_files:
                shutil.copyfile(file, made / file.name)
            if out.exists():
                out.rename(Path(folder) / "old")
            made.rename(out)
    except OSError as error:
        raise UserError("output", str(out), f"could not be written ({error.strerror})") from None
    return out


def _export(source: str | Path, folder: Path, weights: Weights) -> None:
    from optimum.intel import OVModelForCausalLM, OVWeightQuantizationConfig

    compression: dict[str, Any] = {
        "f32": {"load_in_8bit": False},
        "int8": {"quantization_config": OVWeightQuantizationConfig(bits=8)},
        "int4": {"quantization_config": OVWeightQuantizationConfig(bits=4, group_size=_INT4_GROUP)},
    }
    model = OVModelForCausalLM.from_pretrained(
        source, export=True, stateful=True, compile=False, **compression[weights]
    )
    model.save_pretrained(folder)


def _find_tokenizer(source: str | Path) -> list[Path]:
    """The tokenizer's files as they are: loading and saving them again could change them.

    Also where a wrong source shows, before any time is spent on it.
    """
    folder = Path(source)
    if folder.is_dir():
        _require_gpt_neox(folder / "config.json", source)
        found = [folder / name for name in _TOKENIZER_FILES if (folder / name).is_file()]
    else:
        found = _download_tokenizer(str(source))
    if not found or found[0].name != _TOKENIZER_FILES[0]:
        raise UserError("source", str(source), "has no tokenizer.json; add it")
    return found


def _download_tokenizer(name: str) -> list[Path]:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HFValidationError

    try:
        _require_gpt_neox(Path(hf_hub_download(name, "config.json")), name)
        found = []
        for file in _TOKENIZER_FILES:
            try:
                found.append(Path(hf_hub_download(name, file)))
            except EntryNotFoundError:
                continue
    except HFValidationError:
        raise UserError("source", name, "is neither a folder nor a name on the hub") from None
    except OSError as error:  # every hub error, being offline included, is one
        reason = str(error).strip().splitlines()[0]
        raise UserError("source", name, f"is no folder, nor to be had ({reason})") from None
    return found


def _require_gpt_neox(config: Path, source: str | Path) -> None:
    if not config.is_file() or '"gpt_neox"' not in config.read_text(encoding="utf-8"):
        raise UserError(
            "source", str(source), "choose a GPT-NeoX model, such as Dolly v2 or Pythia"
        )


def main() -> None:
    """The command line; exits with 2 and one line on what a user can mend."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.convert", description=__doc__)
    parser.add_argument("source", help="folder, or name on the hub (databricks/dolly-v2-3b)")
    parser.add_argument("out", type=Path, help="folder to make")
    parser.add_argument("--weights", default="int8", help="f32, int8 (default) or int4")
    given = parser.parse_args()
    try:
        print(convert(given.source, given.out, given.weights))
    except UserError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
