"""Small archives with the names and the fields of the real ones."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

ANIMALS = ("cat", "dog", "hen", "cow", "owl", "fox", "bee", "ant", "elk", "emu")


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """An archive of those rows."""
    with lzma.open(path, "wt", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)


def write_archives(folder: Path) -> Path:
    """Dolly's and OpenAssistant's. Record 7 is held out, record 8 asks the same."""
    dolly = [
        {
            "id": index,
            "instruction": f"What does a {animal} say?",
            "context": "",
            "response": f"The {animal} says its own name, {animal}, and then it goes to sleep.",
        }
        for index, animal in enumerate(ANIMALS)
    ]
    dolly[8]["instruction"] = dolly[7]["instruction"].lower()
    write(folder / "dolly15k.jsonl.xz", dolly)
    oasst = [{"instruction": f"Name {n} animals.", "response": "A cat."} for n in range(9)]
    write(folder / "oasst1_pairs.jsonl.xz", oasst)
    return folder
