"""The registry of ways to verify a draft. None changes the distribution of the text."""

from __future__ import annotations

from typing import NamedTuple

from pipeline.decoding.verification.block import verify_block
from pipeline.decoding.verification.tokens import Verify, verify
from pipeline.errors import UserError


class Verifier(NamedTuple):
    """An entry of the registry; `title` is for the page."""

    title: str
    verify: Verify


VERIFIERS = {
    "token": Verifier("Token by token", verify),
    "block": Verifier("As a block", verify_block),
}
DEFAULT_VERIFIER = "token"


def find_verifier(name: str) -> Verifier:
    """Returns the registry's entry of that name.

    Raises:
        UserError: there is none.
    """
    if name not in [*VERIFIERS]:  # a list, since a user's value may not be hashable
        raise UserError("verification", name, f"choose one of {', '.join(VERIFIERS)}")
    return VERIFIERS[name]
