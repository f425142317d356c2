"""One way to say that draws follow a distribution."""

from collections.abc import Hashable, Mapping

from scipy.stats import binomtest, chisquare

SIGNIFICANCE = 1e-5  # seeds are fixed, so a pass stays a pass; few enough to fail only on a fault


def assert_follows(counts: Mapping[Hashable, int], probs: Mapping[Hashable, float]) -> None:
    """Counts of outcomes against their probabilities; rare outcomes are pooled into one."""
    impossible = {outcome for outcome in counts if probs.get(outcome, 0) == 0}
    assert not impossible, f"never possible, yet drawn: {impossible}"
    total, whole = sum(counts.values()), float(sum(probs.values()))
    expected = {outcome: float(p) * total / whole for outcome, p in probs.items() if p > 0}
    common = [outcome for outcome in expected if expected[outcome] >= 5]
    seen = [float(counts.get(outcome, 0)) for outcome in common]
    want = [expected[outcome] for outcome in common]
    if total - sum(want) >= 1:
        seen.append(total - sum(seen))
        want.append(total - sum(want))
    if len(want) == 1:  # one outcome is nearly certain: the others are to be as rare as they are
        rare, chance = int(total - seen[0]), max(0.0, 1 - want[0] / total)
        assert binomtest(rare, int(total), chance, "greater").pvalue > SIGNIFICANCE
        return
    want = [w * sum(seen) / sum(want) for w in want]
    assert chisquare(seen, want).pvalue > SIGNIFICANCE
