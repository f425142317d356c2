"""The results in `lab/results/`: a JSON file for each study, with its date, machine and versions.

What reads a committed result reads it here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from lab.result import Result, Row, now
from lab.study import Study
from pipeline.environment import environment

RESULTS = Path(__file__).with_name("results")  # the committed ones


@dataclass(frozen=True, slots=True)
class Saved:
    """A complete result.

    Attributes:
        created: ISO 8601.
        environment: the machine and the versions, as in a trace.
        pair: what was measured, as in a trace.
        rows: of the table.
        sentence: on what came out.
        figures: beside the table, by name.
    """

    created: str
    environment: Mapping[str, Any]
    pair: Mapping[str, Any]
    rows: tuple[Row, ...]
    sentence: str
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def badge(self) -> str:
        """When it was measured, and on what."""
        cpu = self.environment.get("cpu") or "an unknown machine"
        return f"Measured {self.created[:10]} on {cpu}"

    @property
    def machine(self) -> str:
        """The machine, its cores, the version of OpenVINO and the date."""
        about = self.environment
        cores = f"{about['cpu']} with {about['cores']} cores"
        return f"{cores}, OpenVINO {about['openvino']}, {self.created[:10]}"


def path_of(name: str, folder: Path = RESULTS) -> Path:
    return folder / f"{name}.json"


def output_folder() -> Path:
    """Where results are written: `RESULTS` in a checkout, `results` in the current folder where the
    package is installed.
    """
    return RESULTS if (RESULTS.parents[1] / "pyproject.toml").is_file() else Path("results")


def save(study: Study, result: Result, folder: Path | None = None) -> Path:
    """Writes a complete result; returns its file."""
    about = {
        "question": study.question,
        "created": result.created,
        "pair": result.pair,
        "sentence": study.conclude(result.rows),
        "columns": [asdict(column) for column in study.columns],
        "rows": result.rows,
        "figures": result.figures,
    }
    return _write(study.name, {"environment": environment(), **about}, folder)


def save_figures(name: str, folder: Path | None = None, **figures: Any) -> Path:
    """Writes figures that are no table, with their date; returns their file."""
    return _write(name, {"environment": environment(), "created": now(), **figures}, folder)


def save_parts(
    name: str, parts: Mapping[str, Mapping[str, Any]], folder: Path | None = None
) -> Path:
    """Replaces parts of a result, each with its own date, machine and versions; the others stay.
    Returns the file.
    """
    last = path_of(name, folder or output_folder())
    whole = json.loads(last.read_text(encoding="utf-8")) if last.is_file() else {}
    about = {"created": now(), "environment": environment()}
    return _write(name, whole | {part: {**about, **each} for part, each in parts.items()}, folder)


def saved(name: str, folder: Path = RESULTS) -> Saved | None:
    """The last result of the study of that name; None if there is none."""
    path = path_of(name, folder)
    if not path.is_file():
        return None
    whole = json.loads(path.read_text(encoding="utf-8"))
    known = {field.name: whole[field.name] for field in fields(Saved)}
    return Saved(**known | {"rows": tuple(whole["rows"])})


def _write(name: str, what: Mapping[str, Any], folder: Path | None) -> Path:
    path = path_of(name, folder or output_folder())
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"study": name, **what}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")
    return path
