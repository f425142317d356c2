"""The memory of a decoder: the peak of a process that does nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pipeline.decoding.sampling import SamplingParams

_STATUS = Path("/proc/self/status")
_DRAFT_LENGTH = 4


def peak_bytes(
    target: Path, draft: Path | None, prompt: Sequence[int], max_new_tokens: int, **options: Any
) -> int | None:
    """Peak resident bytes of a process that loads models and answers a prompt greedily; None where
    they cannot be read.

    Args:
        target: the folder of its IR.
        draft: likewise; None for autoregressive decoding.
        prompt: token ids.
        options: further ones of both models, as of `RuntimeOptions`.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_peak, target, draft, prompt, max_new_tokens, options).result()


def _peak(
    target: Path,
    draft: Path | None,
    prompt: Sequence[int],
    max_new_tokens: int,
    options: Mapping[str, Any],
) -> int | None:
    from pipeline.decoding.drafters.model import MODEL
    from pipeline.decoding.lanes import Lanes
    from pipeline.runtime.model import OVModel, RuntimeOptions

    def sequence(folder: Path) -> Any:
        model = OVModel(folder, RuntimeOptions(**options))
        return lambda prompt: model.sequence()

    lanes = Lanes(target=sequence(target), draft=sequence(draft) if draft else None)
    asked = prompt, SamplingParams(), max_new_tokens
    if draft:
        events = lanes.speculative(*asked, MODEL.name, _DRAFT_LENGTH)
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
