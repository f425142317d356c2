"""The registry of ways to verify a draft. Those that are exact keep the target's distribution."""

from __future__ import annotations

from typing import NamedTuple

from pipeline.decoding.verification.block import verify_block
from pipeline.decoding.verification.tokens import Verify, verify
from pipeline.decoding.verification.typical import verify_typical
from pipeline.errors import find_entry


class Verifier(NamedTuple):
    """An entry of the registry.

    Attributes:
        title: on the page.
        verify: verifies a draft.
        exact: whether the text follows the target's distribution.
        jointly: whether the tokens of a sampled draft are tested together.
    """

    title: str
    verify: Verify
    exact: bool = True
    jointly: bool = False


VERIFIERS = {
    "token": Verifier("Token by token", verify),
    "block": Verifier("As a block", verify_block, jointly=True),
    "typical": Verifier("Typical acceptance: lossy", verify_typical, exact=False),
}
DEFAULT_VERIFIER = "token"


def find_verifier(name: str) -> Verifier:
    """The registry's entry of that name; raises UserError if there is none."""
    return find_entry(VERIFIERS, "verification", name)
