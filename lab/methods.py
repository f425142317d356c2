"""The ways of decoding that are compared within this project."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.answers import Condition
from pipeline.decoding.drafters.block import BLOCK
from pipeline.decoding.drafters.model import MODEL
from pipeline.decoding.events import AUTOREGRESSIVE

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly

_K = 4
DRAFT_MODEL, BLOCK_DRAFT = f"draft model, K = {_K}", f"block draft, K = {_K}"
PAGE = "as the page begins"


def methods(dolly: Dolly) -> list[Condition]:
    """Those that the pair has. `DRAFT_MODEL` is the paper's way."""
    found = [Condition(AUTOREGRESSIVE, dolly, "autoregressive")]
    for title, spec in ((DRAFT_MODEL, MODEL), (BLOCK_DRAFT, BLOCK)):
        if spec.name in dolly.pair.drafters:
            changes = {"drafter": spec.name, "draft_length": _K}
            found.append(Condition(title, dolly, changes=changes))
    page = {"draft_length": "auto", **dolly.pair.settings}
    return [*found, Condition(PAGE, dolly, changes=page)]
