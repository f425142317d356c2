"""KV cache and speculation, each alone and both together, with the same plugin settings throughout.

Every cell runs with f32 inference, an f32 cache and no dynamic quantisation, so that cells differ
in nothing but what their names say; one drafter and draft length throughout. The shipped
configuration, which is tuned, stands beside them. Answers do not end by themselves, so that all
have the same length, and the first tokens of an answer are the answer to a smaller budget.

The interaction is the joint gain of cache and speculation, over neither, divided by the product of
their single gains: 1 if each gains as much with the other as without.
"""

from __future__ import annotations

import math
import statistics
from argparse import ArgumentParser
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lab.answers import Answers, Condition, answered, endless, seconds_of, tabulated
from lab.footprint import peak_bytes
from lab.prompts import KINDS
from lab.quality import Quality, qualities
from lab.result import Chart, Column, Result, Row, Rows, even
from lab.study import Setup, Study
from lab.weights import pair_in_precision
from pipeline.decoding.drafters.model import MODEL
from pipeline.decoding.sampling import SamplingParams
from pipeline.models.pairs import Weights, find_pair
from pipeline.request import Request

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.decoding.race import Mode
    from pipeline.dolly import Dolly
    from pipeline.trace.record import Lane

_BUDGETS = 40, 100  # new tokens, as in the paper's table
_PROMPTS = {"short prompt": KINDS["story"][1], "long prompt": KINDS["rewrite"][0]}
_WEIGHTS: tuple[Weights, ...] = ("f32", "int8")
_NO_CACHE, _CACHE = "no cache", "cache"
_POLICIES = {_NO_CACHE: "uncached", _CACHE: "paged"}
_SLOW, _FAST = "autoregressive", "speculative"
_SHIPPED = "shipped"
_PROPERTIES = {"DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}  # f32 inference is everywhere
_SETTINGS: Mapping[str, Any] = {"kv_precision": "f32", "drafter": MODEL.name, "draft_length": 4}
_FOOTPRINT_TOKENS = 16  # new ones; the peak hardly grows with more
_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Combination:
    """One of the factors' combinations, or the shipped configuration."""

    weights: str
    cache: str
    mode: str

    @property
    def name(self) -> str:
        return f"{self.weights}, {self.cache}, {self.mode}"

    @property
    def speculative(self) -> bool:
        return self.mode == _FAST


_CROSSED = [Combination(*each) for each in product(_WEIGHTS, _POLICIES, (_SLOW, _FAST))]
_EVERY = [*_CROSSED, *(Combination(_SHIPPED, _CACHE, mode) for mode in (_SLOW, _FAST))]
_REFERENCE = Combination(_WEIGHTS[0], _NO_CACHE, _SLOW)

Peaks = Mapping[Combination, int | None]
Qualities = Mapping[str, Quality]  # by the weights


def interaction(answers: Answers, weights: str) -> tuple[float, float, float] | None:
    """The interaction of cache and speculation at these weights, and its interval; None before two
    repeats of all four cells.
    """
    measured = {
        (cache, mode): answers.lanes(Combination(weights, cache, mode).name)
        for cache, mode in product(_POLICIES, (_SLOW, _FAST))
    }
    repeats = min(map(len, measured.values()))
    if repeats < 2:
        return None
    seconds = {
        cell: np.array([seconds_of(lane, _BUDGETS[-1]) for lane in lanes[:repeats]])
        for cell, lanes in measured.items()
    }
    # joint / (single × single), where each gain is over neither cache nor speculation
    singles = seconds[_CACHE, _SLOW] * seconds[_NO_CACHE, _FAST]
    return geometric_mean(singles / (seconds[_CACHE, _FAST] * seconds[_NO_CACHE, _SLOW]))


def geometric_mean(ratios: NDArray[np.float64]) -> tuple[float, float, float]:
    """The geometric mean of at least two ratios, and its 95 % interval (Student's t on logarithms).

    Returns:
        the mean, the low end and the high end.
    """
    from scipy.stats import ttest_1samp  # type: ignore[import-untyped]

    logs = np.log(ratios)
    interval = ttest_1samp(logs, 0).confidence_interval(0.95)
    return math.exp(logs.mean()), math.exp(interval.low), math.exp(interval.high)


# --- measuring ------------------------------------------------------------------------------------


def _measure(setup: Setup) -> Generator[Result, None, None]:
    pairs = (setup.choice.pair, *map(find_pair, setup.options.also))
    result = Result()
    before: tuple[Row, ...] = ()
    for place, pair in enumerate(pairs):
        for now in _of_pair(replace(setup, choice=replace(setup.choice, pair=pair), loaded=None)):
            result = replace(
                now,
                rows=(*before, *now.rows),
                done=place * now.planned + now.done,
                planned=now.planned * len(pairs),
                created=result.created,
            )
            yield result
        before = result.rows


def _of_pair(setup: Setup) -> Generator[Result, None, None]:
    dollies = yield from _loaded(setup)
    targets = {
        weights: dolly.models(_POLICIES[_CACHE], None if weights == _SHIPPED else "f32").target
        for weights, dolly in dollies.items()
    }
    tokenizer = dollies[_WEIGHTS[0]].tokenizer
    found = yield from qualities(targets, _WEIGHTS[0], tokenizer, SamplingParams(), _BUDGETS[0])
    peaks: dict[Combination, int | None] = {}
    for each in _EVERY:
        yield Result(doing=f"memory: {each.name}")
        peaks[each] = _peak(setup, dollies[each.weights], each)
    requests = [Request(*prompt, max_new_tokens=_BUDGETS[-1]) for prompt in _PROMPTS.values()]
    whole = {cell: endless(dolly) for cell, dolly in dollies.items()}  # answers of one length
    conditions = [_condition(each, whole) for each in _EVERY]
    answers = answered(conditions, requests, setup.repeats or _REPEATS)
    rows = partial(_rows, setup.choice.pair.name, peaks, found)
    yield from tabulated(answers, rows, dollies[_SHIPPED].about)


def _loaded(setup: Setup) -> Generator[Result, None, Mapping[str, Dolly]]:
    """The pair with the weights of each cell, and as it is shipped."""
    from pipeline.dolly import Dolly

    pairs = {_SHIPPED: setup.choice.pair}
    for weights in _WEIGHTS:
        pair = yield from pair_in_precision(setup, weights, weights)
        pairs[weights] = replace(pair, block=None)
    dollies: dict[str, Dolly] = {}
    for cell, pair in pairs.items():
        for progress in replace(setup.choice, pair=pair).obtain():
            yield Result(doing=str(progress))
        yield Result(doing=f"compiling {pair.name}, {cell}")
        properties = None if cell == _SHIPPED else _PROPERTIES
        dollies[cell] = Dolly(pair, store=setup.choice.store, properties=properties)
    return dollies


def _condition(each: Combination, dollies: Mapping[str, Dolly]) -> Condition:
    dolly = dollies[each.weights]
    changes = {**_SETTINGS, "kv_cache": _POLICIES[each.cache]}
    if each.weights == _SHIPPED:
        changes = {**dolly.pair.settings}
    mode: Mode = "speculative" if each.speculative else "autoregressive"
    return Condition(each.name, dolly, mode, changes)


def _peak(setup: Setup, dolly: Dolly, each: Combination) -> int | None:
    """Peak bytes; of the shipped one, with its draft model."""
    folder, pair = setup.choice.store.folder, dolly.pair
    options: dict[str, Any] = {"kv_precision": "f32", "properties": _PROPERTIES}
    return peak_bytes(
        folder(pair.target),
        folder(pair.required_draft) if each.speculative else None,
        dolly.tokenizer.ask(*[*_PROMPTS.values()][-1]),
        _FOOTPRINT_TOKENS,
        kv_cache=_POLICIES[each.cache],
        **({} if each.weights == _SHIPPED else options),
    )


def _rows(pair: str, peaks: Peaks, qualities: Qualities, answers: Answers) -> Iterator[Row]:
    for request, prompt in enumerate(_PROMPTS):
        here = answers.within({request})
        for each in _EVERY:
            made = here.lanes(each.name)
            base = here.lanes(_REFERENCE.name)
            if not (made and base):
                continue
            peak, quality = peaks[each], qualities[each.weights]
            both = each in _CROSSED and each.cache == _CACHE and each.speculative
            joint = (interaction(here, each.weights) if both else None) or 3 * (None,)
            caches = (
                step.target_kv_bytes + step.draft_kv_bytes for lane in made for step in lane.steps
            )
            yield {
                "case": f"{pair}, {prompt}",
                "cell": each.name,
                **{f"ms{n}": 1e3 * _median_of(made, n) / n for n in _BUDGETS},
                "gain": _median_of(base, _BUDGETS[-1]) / _median_of(made, _BUDGETS[-1]),
                "first": 1e3 * statistics.median(lane.first_token_s or 0.0 for lane in made),
                "peak": None if peak is None else peak / 1e6,
                "cache": max(caches) / 1e6,
                "top1": quality.top1,
                "kl": quality.kl,
                "same": here.identical(each.name, _REFERENCE.name),
                **dict(zip(("interaction", "low", "high"), joint, strict=True)),
            }


def _median_of(lanes: Sequence[Lane], count: int) -> float:
    """Seconds of the first `count` tokens, the median of the answers."""
    return statistics.median(seconds_of(lane, count) for lane in lanes)


def _conclude(rows: Rows) -> str:
    joint = [row for row in rows if row["interaction"] is not None]
    values = [row["interaction"] for row in joint]
    apart = [row for row in joint if not row["low"] <= 1 <= row["high"]]
    gains = {
        mode: [row["gain"] for row in rows if row["cell"] == f"f32, {mode}"]
        for mode in (f"{_CACHE}, {_SLOW}", f"{_NO_CACHE}, {_FAST}", f"{_CACHE}, {_FAST}")
    }
    cache, drafts, both = (_range(each) for each in gains.values())
    return (
        f"In f32 at {_BUDGETS[-1]} tokens, over neither, the cache alone gains {cache}, "
        f"speculation alone {drafts}, both {both}; the joint gain is {_range(values)} the product "
        f"of the single gains over all pairs, prompts and weights, and differs from it (95 % "
        f"interval) in {len(apart)} of {len(joint)} cases."
    )


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}×"


def _arguments(parser: ArgumentParser) -> None:
    help_ = "a further pair to compare"
    parser.add_argument("--also", action="append", default=[], metavar="PAIR", help=help_)


STUDY = Study(
    name="ablation",
    title="Cache and speculation, apart and together",
    question="What do a KV cache and speculation gain alone, what together, and is the joint gain "
    "the product of the two?",
    needs="memory for both models in float32, and a second pair to compare",
    usage="--also PAIR",
    arguments=_arguments,
    seconds=840,
    columns=(
        Column("case", "Pair, prompt"),
        Column("cell", "Weights, cache, method"),
        Column("ms40", "N = 40", "ms per token"),
        Column("ms100", "N = 100", "ms per token"),
        Column("gain", "Speedup over neither in f32", "×"),
        Column("first", "First token", "ms", 0),
        Column("peak", "Peak memory", "MB", 0),
        Column("cache", "Caches", "MB"),
        Column("top1", "Same top-1 as f32", "%", 1),
        Column("kl", "KL from f32", "nats per token", 5),
        Column("same", "Text as the reference’s", "%", 0),
        Column("interaction", "Joint over product of gains"),
        Column("low", "Lower end, 95 %"),
        Column("high", "Upper end, 95 %"),
    ),
    chart=Chart(
        kind="bars",
        x="cell",
        y=("gain",),
        series="case",
        level=even,
        logarithmic=True,
        reading="At 100 tokens, over autoregression in f32 without a cache: the dashed line. All "
        "but the shipped configuration have the same plugin settings.",
    ),
    measure=_measure,
    conclude=_conclude,
)
