"""The memory of a decoder: the peak of a process that does nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pipeline.decoding.sampling import SamplingParams
from pipeline.runtime.kv_cache.precision import KVPrecision

_STATUS = Path("/proc/self/status")


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """A decoder that answers one prompt greedily.

    Attributes:
        target: the folder of its IR.
        draft: likewise; None for autoregressive decoding.
        prompt: token ids.
        max_new_tokens: the budget.
        draft_length: K.
        kv_cache: the name of a cache policy.
        kv_precision: of its keys and values.
        properties: of the plugin.
    """

    target: Path
    draft: Path | None
    prompt: Sequence[int]
    max_new_tokens: int
    draft_length: int = 4
    kv_cache: str = "paged"
    kv_precision: KVPrecision | None = None
    properties: Mapping[str, str | int | bool] = field(default_factory=dict)

    def peak_bytes(self) -> int | None:
        """Peak resident bytes of a process that loads the models and decodes; None where they
        cannot be read.
        """
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            return pool.submit(_peak, self).result()


def _peak(measured: Footprint) -> int | None:
    from pipeline.decoding.drafters.model import MODEL
    from pipeline.decoding.lanes import Lanes
    from pipeline.runtime.model import OVModel, RuntimeOptions

    def sequence(folder: Path) -> Any:
        options = RuntimeOptions(
            measured.kv_cache, measured.kv_precision, properties=measured.properties
        )
        model = OVModel(folder, options)
        return lambda prompt: model.sequence()

    lanes = Lanes(target=sequence(measured.target))
    asked = measured.prompt, SamplingParams(), measured.max_new_tokens
    if measured.draft:
        lanes = Lanes(target=lanes.target, draft=sequence(measured.draft))
        events = lanes.speculative(*asked, MODEL.name, measured.draft_length)
    else:
        events = lanes.autoregressive(*asked)
    for _ in events:
        pass
    return high_water_mark()


def high_water_mark() -> int | None:
    """Of this process's resident memory. `resource` would also count its parent's before it
    started.
    """
    if not _STATUS.is_file():
        return None
    lines = _STATUS.read_text().splitlines()
    found = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return 1024 * int(found[0]) if found else None
