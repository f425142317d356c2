"""What a pair's runs take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured before anything is generated.

    Attributes:
        draft: seconds of drafting one token.
        verify: seconds of a target run of 1, 2, … tokens; the first is an autoregressive step.
        switch: seconds that a target run of another width than the last takes longer.
    """

    draft: float
    verify: Sequence[float]
    switch: float = 0.0
