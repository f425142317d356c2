"""The last result of each experiment, a file in `lab/results/`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab.result import Result, Row
from lab.study import Experiment
from pipeline.environment import environment

RESULTS = Path(__file__).with_name("results")


@dataclass(frozen=True, slots=True)
class Saved:
    """A complete result.

    Attributes:
        created: ISO 8601.
        environment: the machine and the versions, as in a trace.
        pair: what was measured, as in a trace.
        rows: of the table.
        sentence: on what came out.
    """

    created: str
    environment: Mapping[str, Any]
    pair: Mapping[str, Any]
    rows: tuple[Row, ...]
    sentence: str

    @property
    def badge(self) -> str:
        """When it was measured, and on what."""
        cpu = self.environment.get("cpu") or "an unknown machine"
        return f"Measured {self.created[:10]} on {cpu}"


def path_of(experiment: Experiment, folder: Path = RESULTS) -> Path:
    return folder / f"{experiment.name}.json"


def save(experiment: Experiment, result: Result, folder: Path = RESULTS) -> Path:
    """Writes a complete result; returns its file."""
    path = path_of(experiment, folder)
    about = {
        "experiment": experiment.name,
        "question": experiment.question,
        "created": result.created,
        "environment": environment(),
        "pair": result.pair,
        "sentence": experiment.conclude(result.rows),
        "columns": [asdict(column) for column in experiment.columns],
        "rows": result.rows,
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return path


def saved(experiment: Experiment, folder: Path = RESULTS) -> Saved | None:
    """The last result; None if there is none."""
    path = path_of(experiment, folder)
    if not path.is_file():
        return None
    whole = json.loads(path.read_text(encoding="utf-8"))
    return Saved(
        whole["created"],
        whole["environment"],
        whole["pair"],
        tuple(whole["rows"]),
        whole["sentence"],
    )
