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

from lab.answers import Answer, Answers, Condition, answered, seconds_of, tabulated
from lab.footprint import Footprint
from lab.prompts import KINDS
from lab.quality import Quality, qualities
from lab.result import Cell, Chart, Column, Result, Row, Rows, even, number
from lab.study import Setup, Study
from lab.weights import in_precision
from pipeline.decoding.drafters.model import MODEL
from pipeline.decoding.sampling import SamplingParams
from pipeline.models.pairs import Pair, Weights, find_pair
from pipeline.request import Request

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.decoding.race import Mode
    from pipeline.dolly import Dolly

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


def interaction(answers: Answers, weights: str, request: int) -> tuple[float, float, float] | None:
    """The interaction of cache and speculation at these weights, and its interval; None before two
    repeats of all four cells.
    """
    times = {
        (cache, mode): [
            seconds_of(answer.lane, _BUDGETS[-1])
            for answer in answers.of(Combination(weights, cache, mode).name, {request})
        ]
        for cache, mode in product(_POLICIES, (_SLOW, _FAST))
    }
    repeats = min(map(len, times.values()))
    if repeats < 2:
        return None
    # joint / (single × single), where each gain is over neither cache nor speculation
    return geometric_mean(
        [
            times[_CACHE, _SLOW][place]
            * times[_NO_CACHE, _FAST][place]
            / (times[_CACHE, _FAST][place] * times[_NO_CACHE, _SLOW][place])
            for place in range(repeats)
        ]
    )


def geometric_mean(ratios: Sequence[float]) -> tuple[float, float, float]:
    """The geometric mean of at least two ratios, and its 95 % interval (Student's t on logarithms).

    Returns:
        the mean, the low end and the high end.
    """
    from scipy.stats import t  # type: ignore[import-untyped]

    logs = [*map(math.log, ratios)]
    mean = statistics.mean(logs)
    half = t.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


# --- measuring ------------------------------------------------------------------------------------


def _measure(setup: Setup) -> Generator[Result, None, None]:
    pairs = (setup.choice.pair, *map(find_pair, setup.options.also))
    result = Result()
    before: tuple[Row, ...] = ()
    for place, pair in enumerate(pairs):
        for now in _of_pair(replace(setup, choice=replace(setup.choice, pair=pair), loaded=None)):
            rows = (*before, *now.rows)
            planned = now.planned * len(pairs)
            done = place * now.planned + now.done
            result = replace(now, rows=rows, done=done, planned=planned, created=result.created)
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
    peaks = yield from _peaks(setup, dollies)
    for dolly in dollies.values():
        dolly.tokenizer.end_ids = frozenset()  # all answers have the same length
    requests = [Request(*prompt, max_new_tokens=_BUDGETS[-1]) for prompt in _PROMPTS.values()]
    conditions = [_condition(each, dollies, setup.choice.pair) for each in _EVERY]
    answers = answered(conditions, requests, setup.repeats or _REPEATS)
    rows = partial(_rows, setup.choice.pair.name, peaks, found)
    yield from tabulated(answers, rows, dollies[_SHIPPED].about)


def _loaded(setup: Setup) -> Generator[Result, None, Mapping[str, Dolly]]:
    """The pair with the weights of each cell, and as it is shipped."""
    from pipeline.dolly import Dolly

    store, shipped = setup.choice.store, setup.choice.pair
    pairs = {_SHIPPED: shipped}
    for weights in _WEIGHTS:
        target = yield from in_precision(shipped.target, weights, store)
        draft = yield from in_precision(shipped.required_draft, weights, store)
        pairs[weights] = replace(shipped, target=target, draft=draft, block=None)
    dollies: dict[str, Dolly] = {}
    for cell, pair in pairs.items():
        for progress in replace(setup.choice, pair=pair).obtain():
            yield Result(doing=str(progress))
        yield Result(doing=f"compiling {pair.name}, {cell}")
        properties = None if cell == _SHIPPED else _PROPERTIES
        dollies[cell] = Dolly(pair, store=store, properties=properties)
    return dollies


def _condition(each: Combination, dollies: Mapping[str, Dolly], pair: Pair) -> Condition:
    changes = {**_SETTINGS, "kv_cache": _POLICIES[each.cache]}
    if each.weights == _SHIPPED:
        changes = {**pair.settings}
    mode: Mode = "speculative" if each.speculative else "autoregressive"
    return Condition(each.name, dollies[each.weights], mode, changes)


def _peaks(setup: Setup, dollies: Mapping[str, Dolly]) -> Generator[Result, None, Peaks]:
    """Peak bytes of each combination; of the shipped one, with its draft model."""
    store, found = setup.choice.store, {}
    for each in _EVERY:
        yield Result(doing=f"memory: {each.name}")
        dolly, shipped = dollies[each.weights], each.weights == _SHIPPED
        found[each] = Footprint(
            target=store.folder(dolly.pair.target),
            draft=store.folder(dolly.pair.required_draft) if each.speculative else None,
            prompt=dolly.tokenizer.ask(*[*_PROMPTS.values()][-1]),
            max_new_tokens=_FOOTPRINT_TOKENS,
            kv_cache=_POLICIES[each.cache],
            kv_precision=None if shipped else "f32",
            properties={} if shipped else _PROPERTIES,
        ).peak_bytes()
    return found


def _rows(pair: str, peaks: Peaks, qualities: Qualities, answers: Answers) -> Iterator[Row]:
    for request, prompt in enumerate(_PROMPTS):
        for each in _EVERY:
            made = answers.of(each.name, {request})
            base = answers.of(_REFERENCE.name, {request})
            if not (made and base):
                continue
            peak, quality = peaks[each], qualities[each.weights]
            both = each in _CROSSED and each.cache == _CACHE and each.speculative
            joint = interaction(answers, each.weights, request) if both else None
            caches = (
                step.target_kv_bytes + step.draft_kv_bytes for a in made for step in a.lane.steps
            )
            row: dict[str, Cell] = {
                "case": f"{pair}, {prompt}",
                "cell": each.name,
                **{f"ms{n}": 1e3 * _median_of(made, n) / n for n in _BUDGETS},
                "gain": _median_of(base, _BUDGETS[-1]) / _median_of(made, _BUDGETS[-1]),
                "first": 1e3 * statistics.median(a.lane.first_token_s or 0.0 for a in made),
                "peak": None if peak is None else peak / 1e6,
                "cache": max(caches) / 1e6,
                "top1": quality.top1,
                "kl": quality.kl,
                "same": answers.identical(each.name, _REFERENCE.name, {request}),
                "interaction": joint[0] if joint else None,
                "low": joint[1] if joint else None,
                "high": joint[2] if joint else None,
            }
            yield row


def _median_of(answers: Sequence[Answer], count: int) -> float:
    """Seconds of the first `count` tokens, the median of the answers."""
    return statistics.median(seconds_of(answer.lane, count) for answer in answers)


def _conclude(rows: Rows) -> str:
    joint = [row for row in rows if row["interaction"] is not None]
    values = [number(row["interaction"]) for row in joint]
    apart = [row for row in joint if not number(row["low"]) <= 1 <= number(row["high"])]
    gains = {
        mode: [number(row["gain"]) for row in rows if row["cell"] == f"f32, {mode}"]
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
