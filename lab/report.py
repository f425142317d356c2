"""The JSON file of a benchmark."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline.environment import environment

RESULTS = Path(__file__).with_name("results")


def save(benchmark: str, **results: Any) -> None:
    """Writes the results with their date, machine and versions to `lab/results/`."""
    path = RESULTS / f"{benchmark}.json"
    about = {"benchmark": benchmark, "created": datetime.now(UTC).isoformat(timespec="seconds")}
    whole = about | {"environment": environment()} | results
    path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    print(f"\n{path}")
