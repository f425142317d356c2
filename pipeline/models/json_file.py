"""What a model's folder tells in JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipeline.errors import UserError


def read_json(path: Path) -> dict[str, Any]:
    """The object that a file holds; an empty one if there is no file.

    Raises:
        UserError: it cannot be read, or holds something else.
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
