"""What a token costs beside time: CPU seconds, bytes of weights read, joules.

    python -m lab.studies.cost

Each lane answers alone, greedily, in an order that turns; the prompt is left out. CPU seconds are
of this process, all threads together. A forward pass reads each weight once, as it is stored: a
tied head counts, rows looked up in an embedding do not. Joules are of the processors' packages and
of all that runs on them, where Linux reports them (RAPL).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from lab.engines.methods import methods
from lab.prompts import KINDS
from lab.report import save
from lab.spread import Spread
from lab.table import table
from lab.weights import bytes_per_pass
from pipeline.decoding.events import Prefill
from pipeline.decoding.race import Mode
from pipeline.dolly import Dolly
from pipeline.errors import UserError
from pipeline.models.pairs import DEFAULT_PAIR
from pipeline.models.store import Store
from pipeline.request import Request
from pipeline.runtime.ir import read_model
from pipeline.trace.recording import Update

POWERCAP = Path("/sys/class/powercap")


@dataclass(frozen=True, slots=True)
class Usage:
    """What decoding an answer took, its prompt left out.

    Attributes:
        tokens: emitted.
        passes: forward passes, by model.
        joules: None where they cannot be measured.
    """

    tokens: int
    seconds: float
    cpu_seconds: float
    passes: Mapping[str, int]
    joules: float | None

    def per_token(self, sizes: Mapping[str, int]) -> dict[str, float | None]:
        """Milliseconds, CPU milliseconds, megabytes of weights read, and joules.

        Args:
            sizes: bytes of weights that a pass reads, by model.
        """
        read = sum(count * sizes[model] for model, count in self.passes.items())
        return {
            "ms": 1e3 * self.seconds / self.tokens,
            "cpu_ms": 1e3 * self.cpu_seconds / self.tokens,
            "weights_mb": read / 1e6 / self.tokens,
            "joules": None if self.joules is None else self.joules / self.tokens,
        }


class EnergyMeter:
    """RAPL's counters of the processors' packages. Linux lets only root read them by default.

    Args:
        root: where Linux reports them.
    """

    def __init__(self, root: Path = POWERCAP) -> None:
        zones = [zone for zone in root.glob("intel-rapl:*") if _read(zone / "name")]
        packages = [zone for zone in zones if _read(zone / "name").startswith("package")]
        self._ranges = {
            zone: int(_read(zone / "max_energy_range_uj"))
            for zone in packages
            if _read(zone / "energy_uj")
        }

    def read(self) -> dict[Path, int]:
        """Microjoules by package, from any starting point; empty where nothing can be read."""
        return {zone: int(_read(zone / "energy_uj")) for zone in self._ranges}

    def joules_since(self, before: Mapping[Path, int]) -> float | None:
        """Joules since an earlier `read`; None where nothing can be read."""
        if not self._ranges:
            return None
        now = self.read()
        # A counter starts again at zero when it is full.
        used = ((now[zone] - before[zone]) % full for zone, full in self._ranges.items())
        return sum(used) / 1e6


def _read(path: Path) -> str:
    """The text of a file of the kernel's; empty if it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def measure(
    dolly: Dolly,
    prompt: tuple[str, str],
    max_new_tokens: int,
    settings: Mapping[str, Any] | None,
) -> Usage:
    """Answers an instruction and its context with one lane, from the end of its prompt on.

    Args:
        settings: further fields of the request; None is autoregressive.
    """
    request = Request(*prompt, max_new_tokens, **(settings or {}))
    models, meter = dolly.models_for(request), EnergyMeter()
    loaded = {"target": models.target, "draft": models.draft, "block": models.block_draft}

    def passes() -> dict[str, int]:
        return {name: model.compiled.forward_passes for name, model in loaded.items() if model}

    mode: Mode = "autoregressive" if settings is None else "speculative"
    run = dolly.start(request, mode)
    for update in run:
        if isinstance(update, Update) and isinstance(update.event, Prefill):
            before, energy = passes(), meter.read()
            start, cpu_start = perf_counter(), process_time()
    seconds, cpu_seconds = perf_counter() - start, process_time() - cpu_start
    joules = meter.joules_since(energy)
    made = {name: count - before[name] for name, count in passes().items()}
    tokens = len(run.trace().lanes[mode].tokens)
    return Usage(tokens, seconds, cpu_seconds, made, joules)


def measure_lanes(dolly: Dolly, max_new_tokens: int, repeats: int) -> dict[str, list[Usage]]:
    """The usage of every answer to `KINDS`, by method, in an order that turns."""
    asked = [prompt for prompts in KINDS.values() for prompt in prompts]
    ways = methods(dolly.pair)
    usages = {name: list[Usage]() for name in ways}
    for settings in ways.values():  # warms up the caches and measures the costs for `auto`
        measure(dolly, asked[0], max_new_tokens, settings)
    for turn, prompt in enumerate(asked * repeats):
        for name in [*ways][turn % len(ways) :] + [*ways][: turn % len(ways)]:
            usages[name].append(measure(dolly, prompt, max_new_tokens, ways[name]))
    return usages


def spread(samples: Sequence[float | None]) -> Spread | None:
    """None where nothing was measured."""
    measured = [sample for sample in samples if sample is not None]
    return Spread.of(measured) if measured else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pair", default=DEFAULT_PAIR)
    parser.add_argument("--max-new-tokens", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    try:
        dolly = Dolly(options.pair)
        folders = {"target": Store().folder(dolly.pair.target)}
        folders["draft"] = Store().folder(dolly.pair.draft)
        if dolly.pair.block:
            folders["block"] = dolly.pair.block
        usages = measure_lanes(dolly, options.max_new_tokens, options.repeats)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    sizes = {name: bytes_per_pass(read_model(folder)) for name, folder in folders.items()}
    rows: dict[str, dict[str, Spread | None]] = {}
    for name, answers in usages.items():
        costs = [usage.per_token(sizes) for usage in answers]
        rows[name] = {unit: spread([cost[unit] for cost in costs]) for unit in costs[0]}
    table(
        ("per token", "ms", "CPU ms", "MB of weights", "J"),
        [[name, *(s or "not measurable here" for s in row.values())] for name, row in rows.items()],
    )
    each = ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in sizes.items())
    print(f"A pass reads: {each}.")
    save(
        "cost",
        pair=dolly.about,
        max_new_tokens=options.max_new_tokens,
        pass_bytes=sizes,
        per_token={
            name: {unit: s and asdict(s) for unit, s in row.items()} for name, row in rows.items()
        },
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
