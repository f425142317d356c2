"""The file of a model's weights, which may be in parts: some hosts take no large files.

The parts are named as shards of safetensors are, `openvino_model-00001-of-00003.bin`, and are the
bytes of `openvino_model.bin`, one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import openvino as ov

WHOLE = "openvino_model.bin"
PARTS = "openvino_model-*-of-*.bin"


def weight_files(folder: Path) -> list[Path]:
    """The file, or its parts in order; empty if it is not there, or not all parts are."""
    if (folder / WHOLE).is_file():
        return [folder / WHOLE]
    parts = sorted(folder.glob(PARTS))
    names = [part_name(place, len(parts)) for place in range(len(parts))]
    return parts if names == [part.name for part in parts] else []


def part_name(place: int, count: int) -> str:
    """Of one of `count` parts, from 0."""
    return f"openvino_model-{place + 1:05}-of-{count:05}.bin"


def weight_bytes(folder: Path) -> int:
    """Bytes of the weights in a folder; 0 if there are none."""
    return sum(file.stat().st_size for file in weight_files(folder))


def read_weights(files: Sequence[Path]) -> ov.Tensor:
    """All bytes of the parts, uint8[bytes]."""
    sizes = [file.stat().st_size for file in files]
    weights = ov.Tensor(ov.Type.u8, ov.Shape([sum(sizes)]))
    for file, end, size in zip(files, accumulate(sizes), sizes, strict=True):
        with file.open("rb") as content:
            content.readinto(memoryview(weights.data)[end - size : end])
    return weights
