"""The embedded pair, compiled once for all tests."""

from functools import cache

from pipeline.dolly import Dolly


@cache
def embedded() -> Dolly:
    return Dolly()
