"""How well drawn outcomes fit a distribution, and how evenly p-values are spread. NumPy only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

Outcome = tuple[int, ...]  # the first tokens of a text

BINS = 20  # of a histogram of p-values
_LEAST = 2.0  # expected draws of an outcome with a cell of its own; rarer ones share one
_SIMULATIONS = 999


def p_value(
    counts: Mapping[Outcome, int], probs: Mapping[Outcome, float], rng: np.random.Generator
) -> float:
    """The p-value of chi-square for counts of outcomes against their probabilities.

    The statistic is compared with that of simulated draws, and a tie is broken at random. So the
    p-value of draws that follow `probs` is uniform however few they are, where the chi-square
    distribution is an approximation for many.

    Returns:
        In 0..1; 0 if an outcome was drawn that has no probability.
    """
    if any(not probs.get(outcome) for outcome in counts):
        return 0.0
    possible = [outcome for outcome, prob in probs.items() if prob]
    weights = np.array([probs[outcome] for outcome in possible], np.float64)
    weights /= weights.sum()
    drawn = np.array([counts.get(outcome, 0) for outcome in possible], np.int64)
    total = int(drawn.sum())
    draws = np.vstack([drawn, rng.multinomial(total, weights, size=_SIMULATIONS)])
    rare = weights * total < _LEAST
    expected, cells = weights[~rare] * total, draws[:, ~rare]
    if rare.any():
        expected = np.append(expected, weights[rare].sum() * total)
        cells = np.column_stack([cells, draws[:, rare].sum(axis=1)])
    statistics = ((cells - expected) ** 2 / expected).sum(axis=1).round(9)  # ties are equal
    above, ties = (statistics > statistics[0]).sum(), (statistics == statistics[0]).sum()
    return float((above + rng.random() * ties) / len(statistics))


def uniformity(p_values: Sequence[float]) -> tuple[float, float]:
    """The Kolmogorov–Smirnov test of p-values against the uniform distribution.

    Returns:
        The largest distance between both distribution functions, and its p-value (Stephens 1970).
    """
    count, ordered = len(p_values), sorted(p_values)
    distance = max(
        max((rank + 1) / count - value, value - rank / count) for rank, value in enumerate(ordered)
    )
    scaled = distance * (math.sqrt(count) + 0.12 + 0.11 / math.sqrt(count))
    if scaled < 0.2:  # the series converges slowly there, to 1
        return distance, 1.0
    terms = ((-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 101))
    return distance, min(1.0, max(0.0, 2 * sum(terms)))


def histogram(p_values: Sequence[float]) -> list[int]:
    """How many p-values are in each of `BINS` equal parts of 0..1."""
    return [int(count) for count in np.histogram(p_values, BINS, (0.0, 1.0))[0]]
