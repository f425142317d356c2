"""The pair that is shipped, compiled once for all tests. Slow: `tests.tiny` where any pair does."""

from functools import cache

from pipeline.dolly import Dolly


@cache
def embedded() -> Dolly:
    return Dolly()
