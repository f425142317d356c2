"""The pair that is shipped, compiled once for all tests. Slow: `tests.tiny` where any pair does."""

from functools import cache

from pipeline.decoding.economics import Costs, Measurement
from pipeline.dolly import Dolly

# About those of two idle cores; no test waits until the cores are idle.
_VERIFY = (0.011, 0.012, 0.012, 0.013, 0.013, 0.014, 0.014, 0.015, 0.015)
_COSTS = Costs(0.003, _VERIFY, switch=0.004, block_draft=0.005)


@cache
def embedded() -> Dolly:
    dolly = Dolly()
    dolly.models().measured = Measurement(_COSTS, spread=0.0)
    return dolly
