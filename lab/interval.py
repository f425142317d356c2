"""The interval of a mean."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

# Student's t for 95 %, by degrees of freedom from 1; beyond, close to the normal distribution's.
_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
_T_MANY = 2.2


def geometric_mean(ratios: Sequence[float]) -> tuple[float, float, float]:
    """The geometric mean of at least two ratios, and its 95 % interval (Student's t on logarithms).

    Returns:
        the mean, the low end and the high end.
    """
    logs = [*map(math.log, ratios)]
    freedom = len(logs) - 1
    t = _T[freedom - 1] if freedom <= len(_T) else _T_MANY
    mean = statistics.mean(logs)
    half = t * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)
