"""What a token costs beside time: CPU seconds, bytes of weights read, joules.

    python -m benchmarks.cost

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

from benchmarks.report import save
from experiments.prompts import KINDS
from experiments.spread import Spread
from experiments.table import table
from pipeline.decoding.events import Prefill
from pipeline.decoding.race import Mode
from pipeline.dolly import Dolly
from pipeline.errors import UserError
from pipeline.models.pairs import DEFAULT_PAIR
from pipeline.models.store import Store
from pipeline.request import Request
from pipeline.runtime.ir import bytes_per_pass, read_model

LANES: dict[str, tuple[Mode, Mapping[str, Any]]] = {
    "autoregressive": ("autoregressive", {}),
    "speculative, K = 4": ("speculative", {"draft_length": 4}),
    "speculative, K = auto": ("speculative", {"draft_length": "auto"}),
}
POWERCAP = Path("/sys/class/powercap")


@dataclass(frozen=True, slots=True)
class PassBytes:
    """Bytes of weights that a forward pass reads."""

    target: int
    draft: int


@dataclass(frozen=True, slots=True)
class Usage:
    """What decoding an answer took, its prompt left out.

    Attributes:
        tokens: emitted.
        target_passes, draft_passes: forward passes of the models.
        joules: None where they cannot be measured.
    """

    tokens: int
    seconds: float
    cpu_seconds: float
    target_passes: int
    draft_passes: int
    joules: float | None

    def per_token(self, sizes: PassBytes) -> dict[str, float | None]:
        """Milliseconds, CPU milliseconds, megabytes of weights read, and joules."""
        read = self.target_passes * sizes.target + self.draft_passes * sizes.draft
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


def measure(dolly: Dolly, request: Request, mode: Mode, meter: EnergyMeter) -> Usage:
    """Answers `request` with one lane, from the end of its prompt on."""
    models = dolly.models_for(request)

    def passes() -> tuple[int, int]:
        return models.target.forward_passes, models.draft.forward_passes

    run = dolly.start(request, mode)
    for update in run:
        if isinstance(update.event, Prefill):
            before, energy = passes(), meter.read()
            start, cpu_start = perf_counter(), process_time()
    seconds, cpu_seconds = perf_counter() - start, process_time() - cpu_start
    joules = meter.joules_since(energy)
    target, draft = (now - then for now, then in zip(passes(), before, strict=True))
    tokens = len(run.trace().lanes[mode].tokens)
    return Usage(tokens, seconds, cpu_seconds, target, draft, joules)


def measure_lanes(dolly: Dolly, max_new_tokens: int, repeats: int) -> dict[str, list[Usage]]:
    """The usage of every answer to `KINDS`, by lane; lanes alternate."""
    asked = [prompt for prompts in KINDS.values() for prompt in prompts]
    meter, usages = EnergyMeter(), {name: list[Usage]() for name in LANES}

    def answer(name: str, prompt: tuple[str, str]) -> Usage:
        mode, settings = LANES[name]
        request = Request(*prompt, max_new_tokens=max_new_tokens, **settings)
        return measure(dolly, request, mode, meter)

    for name in LANES:  # warms up the caches and measures the costs for `auto`
        answer(name, asked[0])
    for turn, prompt in enumerate(asked * repeats):
        names = [*LANES][turn % len(LANES) :] + [*LANES][: turn % len(LANES)]
        for name in names:
            usages[name].append(answer(name, prompt))
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
        folders = [Store().folder(model) for model in (dolly.pair.target, dolly.pair.draft)]
        usages = measure_lanes(dolly, options.max_new_tokens, options.repeats)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    sizes = PassBytes(*(bytes_per_pass(read_model(folder)) for folder in folders))
    rows: dict[str, dict[str, Spread | None]] = {}
    for name, answers in usages.items():
        costs = [usage.per_token(sizes) for usage in answers]
        rows[name] = {unit: spread([cost[unit] for cost in costs]) for unit in costs[0]}
    table(
        ("per token", "ms", "CPU ms", "MB of weights", "J"),
        [[name, *(s or "not measurable here" for s in row.values())] for name, row in rows.items()],
    )
    print(f"A pass of the target reads {sizes.target / 1e6:.1f} MB, one of the draft", end=" ")
    print(f"{sizes.draft / 1e6:.1f} MB.")
    save(
        "cost",
        pair=dolly.about,
        max_new_tokens=options.max_new_tokens,
        pass_bytes=asdict(sizes),
        per_token={
            name: {unit: s and asdict(s) for unit, s in row.items()} for name, row in rows.items()
        },
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
