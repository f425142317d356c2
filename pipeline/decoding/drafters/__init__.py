"""The registry of drafters. To add one, write a module here and list it in `DRAFTERS`."""

from __future__ import annotations

from pipeline.decoding.drafters.block import BLOCK
from pipeline.decoding.drafters.drafter import Drafter, DrafterSetup, DrafterSpec
from pipeline.decoding.drafters.hybrid import HYBRID, MEMORY
from pipeline.decoding.drafters.lookup import LOOKUP
from pipeline.decoding.drafters.model import MODEL
from pipeline.errors import UserError, find_entry

__all__ = [
    "DEFAULT_DRAFTER",
    "DRAFTERS",
    "Drafter",
    "DrafterSetup",
    "DrafterSpec",
    "check_drafter",
    "drafters_with",
    "find_drafter",
]

# By name, in the order of menus.
DRAFTERS: dict[str, DrafterSpec] = {
    spec.name: spec for spec in (MODEL, BLOCK, LOOKUP, HYBRID, MEMORY)
}
DEFAULT_DRAFTER = MODEL.name


def find_drafter(name: str) -> DrafterSpec:
    """The registry's entry of that name; raises UserError if there is none."""
    return find_entry(DRAFTERS, "drafter", name)


def drafters_with(draft_model: bool, block_draft: bool) -> tuple[str, ...]:
    """The names of those that can draft for a pair that has these models, or has them not."""
    return tuple(name for name, spec in DRAFTERS.items() if spec.fits(draft_model, block_draft))


def check_drafter(name: str, draft_model: bool, block_draft: bool) -> None:
    """Raises UserError unless the drafter can draft for a pair that has these models, or not."""
    if not find_drafter(name).fits(draft_model, block_draft):
        those = ", ".join(drafters_with(draft_model, block_draft))
        remedy = f"this pair has no model for it; choose one of {those}, or another pair"
        raise UserError("drafter", name, remedy)
