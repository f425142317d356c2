"""Sampling: logits to probabilities to a token. NumPy only; the caller owns the generator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.decoding.events import Candidates, Logprob
from pipeline.errors import LogitsError

Logits = NDArray[np.float32]
Probs = NDArray[np.float32]

_MIN_CANDIDATE_PROB = 5e-4  # of a token in the list of the most likely
_MIN_LOGPROB = -9999.0  # of a token that is impossible, as OpenAI reports it
_MIN_TEMPERATURE = 1e-6  # below it, float32 cannot represent the difference to greedy


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Parameters that turn logits into a distribution, the same for both models.

    Args:
        temperature: divides the logits; 0 is greedy (a one-hot distribution).
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the fewest most likely tokens whose probabilities reach it; 1 keeps all.
        seed: of the random generator of a generation.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


class Rows(Protocol):
    """Distributions over the vocabulary by row: an array of them, or `Distributions`."""

    def __getitem__(self, row: int, /) -> Probs: ...


@dataclass(frozen=True, slots=True)
class Distributions:
    """The distributions of logits, each computed when it is asked for: verification needs none
    after the first rejection.

    Args:
        logits: float32[n, vocab].
    """

    logits: Logits
    params: SamplingParams
    _rows: dict[int, Probs] = field(default_factory=dict, init=False)

    def __getitem__(self, row: int, /) -> Probs:
        if row not in self._rows:
            (self._rows[row],) = probabilities(self.logits[row : row + 1], self.params)
        return self._rows[row]


def probabilities(logits: Logits, params: SamplingParams, model: str = "target") -> Probs:
    """The distributions to sample from: temperature, then top-k, then top-p, as in Hugging Face.

    Args:
        logits: float32[n, vocab].
        model: whose they are, for the error.

    Returns:
        float32[n, vocab], rows sum to 1.

    Raises:
        LogitsError: a row's largest logit is not finite.
    """
    if params.temperature == 0:
        one_hot = np.zeros_like(logits)
        for row, kept in zip(logits, one_hot, strict=True):
            kept[greedy_token(row, model)] = 1
        return one_hot
    # Row by row, so that a row stays in the core's own cache, and in one scratch array: large
    # temporaries cost more than the arithmetic.
    probs = np.zeros_like(logits)
    weights = np.empty(logits.shape[-1], logits.dtype)
    temperature = np.float32(max(params.temperature, _MIN_TEMPERATURE))
    for row, kept in zip(logits, probs, strict=True):
        # The maximum is subtracted first, so that a tiny temperature cannot overflow.
        largest = row.max()
        _check_finite(largest, model)
        np.subtract(row, largest, out=weights)
        weights /= temperature
        if 0 < params.top_k < len(row):
            weights[weights < np.partition(weights, -params.top_k)[-params.top_k]] = -np.inf
        np.exp(weights, out=weights)
        if params.top_p < 1:
            _keep_nucleus(weights, params.top_p, kept)
        else:
            np.divide(weights, weights.sum(), out=kept)
    return probs


def greedy_token(logits: Logits, model: str = "target") -> int:
    """The token with the largest of the logits float32[vocab], the first of equals.

    Raises:
        LogitsError: that logit is not finite.
    """
    best = int(logits.argmax())
    _check_finite(logits[best], model)
    return best


def likeliest(probs: Probs, count: int) -> tuple[Candidates, ...]:
    """The `count` most likely tokens of each row of float32[n, vocab], or those above 0.0005 if
    they are fewer. For display, not for sampling.
    """
    found = []
    for row in probs:
        likely = np.flatnonzero(row > _MIN_CANDIDATE_PROB)
        if not likely.size:  # nearly uniform
            likely = np.argpartition(row, -count)[-count:]
        best = likely[np.argsort(-row[likely], kind="stable")[:count]]
        found.append(tuple((int(token), float(row[token])) for token in best))
    return tuple(found)


def log_probabilities(logits: Logits, tokens: Sequence[int], top: int) -> tuple[Logprob, ...]:
    """The log-probability of a token for each row of float32[n, vocab], and those of the `top` most
    likely tokens, the first of equals before the others. Temperature, top-k and top-p have no part
    in them.
    """
    found = []
    for row, token in zip(logits, tokens, strict=True):
        wide = row.astype(np.float64) - row.max()
        wide = np.maximum(wide - np.log(np.exp(wide).sum()), _MIN_LOGPROB)
        count = min(top, len(wide))
        edge = np.partition(wide, -count)[-count] if count else np.inf
        likely = np.flatnonzero(wide >= edge)
        best = likely[np.argsort(-wide[likely], kind="stable")[:count]]
        candidates = tuple((int(each), float(wide[each])) for each in best)
        found.append(Logprob(float(wide[token]), candidates))
    return tuple(found)


def sample_token(logits: Logits, params: SamplingParams, rng: np.random.Generator) -> int:
    """Samples a token from logits float32[1, vocab]; greedy decoding takes the argmax."""
    if params.temperature == 0:
        return greedy_token(logits[0])
    return sample(probabilities(logits, params)[0], rng)


def sample(probs: Probs, rng: np.random.Generator) -> int:
    """Samples a token id from float[vocab] weights, which need not sum to exactly 1.

    Inverse transform sampling over the tokens with a positive weight. The cumulative sum is
    float64, so that rounding cannot carry the sample past the end. A single possible token needs no
    random number.
    """
    possible = np.flatnonzero(probs > 0)  # of booleans it is several times faster
    if len(possible) == 1:
        return int(possible[0])
    cumulative = np.cumsum(probs[possible], dtype=np.float64)
    index = np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right")
    return int(possible[index])


def _check_finite(largest: float, model: str) -> None:
    """Checks the largest logit of a row. It is NaN if any of them is, so that decoding, which needs
    it anyway, finds every failure without another pass over the row.
    """
    if not math.isfinite(largest):
        remedy = "its weights are damaged or overflow; convert it again, or choose f32 weights"
        raise LogitsError(f"{model} logits", float(largest), remedy)


def _keep_nucleus(weights: Probs, top_p: float, probs: Probs) -> None:
    """Writes the probabilities of the fewest most likely tokens that reach `top_p` into `probs`,
    which is all zeros.

    Sorting a whole vocabulary costs more than a draft step. Tokens whose share is below
    (1 - top_p) / vocab add up to less than 1 - top_p, so they are outside the nucleus and only the
    rest is sorted.

    Args:
        weights: float32[vocab], the largest of them 1.
    """
    total = float(weights.sum())
    if top_p * total <= 1:  # a common case, without sorting
        probs[weights.argmax()] = 1
        return
    likely = np.flatnonzero(weights >= (1 - top_p) * total / weights.size)
    candidates = weights[likely]
    descending = -np.sort(-candidates)  # values only: sorting indices is several times slower
    # Where rounding keeps the running sum below top_p, searchsorted returns the end: keep all.
    reached = int(np.searchsorted(np.cumsum(descending, dtype=np.float64), top_p * total))
    count = min(reached + 1, len(likely))
    edge = descending[count - 1]
    kept = np.flatnonzero(candidates >= edge)
    if len(kept) > count:  # of equal weights at the edge, the first are kept
        equals = np.flatnonzero(candidates == edge)
        kept = np.setdiff1d(kept, equals[count - len(kept) :])
    nucleus = candidates[kept]
    probs[likely[kept]] = nucleus / nucleus.sum()
