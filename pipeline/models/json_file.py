"""Reads the JSON files of a model's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipeline.errors import UserError


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file; empty if the file does not exist.

    Raises:
        UserError: the file cannot be read, or contains no object.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, OSError):
        found = None
    if not isinstance(found, dict):
        raise UserError("model", str(path.parent), f"replace its unreadable {path.name}")
    return found
