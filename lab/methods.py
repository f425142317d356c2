"""The ways of decoding that are compared within this project, as settings of a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.decoding.drafters.block import BLOCK
from pipeline.decoding.drafters.model import MODEL
from pipeline.decoding.events import AUTOREGRESSIVE
from pipeline.models.pairs import Pair

_K = 4
DRAFT_MODEL, BLOCK_DRAFT = f"draft model, K = {_K}", f"block draft, K = {_K}"
PAGE = "as the page begins"


def methods(pair: Pair) -> dict[str, Mapping[str, Any] | None]:
    """Fields of a `Request` by name; None is autoregressive. `DRAFT_MODEL` is the paper's way."""
    found: dict[str, Mapping[str, Any] | None] = {AUTOREGRESSIVE: None}
    for title, spec in ((DRAFT_MODEL, MODEL), (BLOCK_DRAFT, BLOCK)):
        if spec.name in pair.drafters:
            found[title] = {"drafter": spec.name, "draft_length": _K}
    return found | {PAGE: {"draft_length": "auto", **pair.settings}}
