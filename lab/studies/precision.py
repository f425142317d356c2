"""The precision of weights: speed, memory, acceptance and quality, of target and draft.

The reference is the target in float32. Quality is measured on its own answers, greedy and sampled.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lab.answers import Answers, Condition, answered, both_modes, tabulated
from lab.footprint import peak_bytes
from lab.prompts import FIRST
from lab.quality import Quality, qualities
from lab.result import Chart, Column, Result, Row, Rows, even
from lab.study import Setup, Study
from lab.weights import pair_in_precision
from pipeline.decoding.drafters.model import MODEL
from pipeline.decoding.sampling import SamplingParams
from pipeline.models.pairs import Weights
from pipeline.request import Request
from pipeline.words import counted, percent

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly
    from pipeline.runtime.model import OVModel

_EVERY: tuple[Weights, ...] = ("f32", "fp16", "int8", "int4")
_REFERENCE: Weights = "f32"
_USUAL: Weights = "int8"
Both = tuple[Weights, Weights]  # of target and draft
_PAIRS: tuple[Both, ...] = (
    *((weights, weights) for weights in _EVERY),
    *((_USUAL, weights) for weights in _EVERY if weights != _USUAL),
)
_MAX_NEW_TOKENS = 60
_REPEATS = 3
_TEXTS: Mapping[str, Mapping[str, Any]] = {  # by how they are written
    "greedy": {},
    "sampled": {"temperature": 0.7, "top_p": 0.92},
}
_SLOW, _FAST = "autoregressive", "speculative"

Qualities = Mapping[str, Mapping[str, Quality]]  # on a kind of text, of a target


def _measure(setup: Setup) -> Generator[Result, None, None]:
    dollies: dict[Both, Dolly] = {}
    for both in _PAIRS:
        pair = yield from pair_in_precision(setup, *both)
        dollies[both] = yield from setup.other(replace(pair, block=None))
    tokenizer = dollies[_PAIRS[0]].tokenizer
    targets: dict[str, OVModel] = {
        weights: dollies[weights, weights].models().target for weights in _EVERY
    }
    found: dict[str, Mapping[str, Quality]] = {}
    for text, shaping in _TEXTS.items():
        params = SamplingParams(**shaping)
        found[text] = yield from qualities(targets, _REFERENCE, tokenizer, params, _MAX_NEW_TOKENS)
    peaks: dict[Both, int | None] = {}
    for both, dolly in dollies.items():
        yield Result(doing=f"memory of {' and '.join(both)}")
        peaks[both] = peak_bytes(
            setup.choice.store.folder(dolly.pair.target),
            setup.choice.store.folder(dolly.pair.required_draft),
            tokenizer.ask(*FIRST[0]),
            _MAX_NEW_TOKENS,
        )
    requests = [
        Request(*prompt, max_new_tokens=_MAX_NEW_TOKENS, drafter=MODEL.name) for prompt in FIRST
    ]
    answers = answered(conditions(dollies), requests, setup.repeats or _REPEATS)
    about = dollies[_PAIRS[0]].about
    yield from tabulated(answers, partial(rows_of, found, peaks), about)


def conditions(dollies: Mapping[Both, Dolly]) -> list[Condition]:
    """Each kind of text with every pair, autoregressive and speculative."""
    return [
        condition
        for both, dolly in dollies.items()
        for text, shaping in _TEXTS.items()
        for condition in both_modes(_name(both, text), dolly, shaping)
    ]


def _name(both: Both, text: str) -> str:
    return " ".join((*both, text))


def rows_of(
    qualities: Qualities, peaks: Mapping[Both, int | None], answers: Answers
) -> Iterator[Row]:
    for both in _PAIRS:
        for text in _TEXTS:
            slow, fast = (f"{_name(both, text)} {mode}" for mode in (_SLOW, _FAST))
            if not (cells := answers.cells(fast, slow)):
                continue
            target, draft = both
            peak, quality = peaks[both], qualities[text][target]
            yield {
                "pair": f"{target} + {draft}",
                "text": text,
                "slow": cells["ms"] * cells["speedup"],
                "fast": cells["ms"],
                "speedup": cells["speedup"],
                "over_reference": answers.speedup(fast, f"{_name(_PAIRS[0], text)} {_SLOW}"),
                "acceptance": cells["acceptance"],
                "memory": None if peak is None else peak / 1e6,
                "top1": quality.top1,
                "kl": quality.kl,
                "identical": answers.identical(fast, slow) if text == "greedy" else None,
            }


def _conclude(rows: Rows) -> str:
    greedy = {row["pair"]: row for row in rows if row["text"] == "greedy"}
    first, usual, least = (greedy[f"{w} + {w}"] for w in (_REFERENCE, _USUAL, _EVERY[-1]))
    drafts = [greedy[f"{_USUAL} + {draft}"]["acceptance"] for draft in _EVERY]
    return (
        f"Beside speculation in f32, int8 for both is {_times(usual, first)}× as fast and keeps "
        f"the most likely token at {percent(usual['top1'], 1)} of positions, int4 "
        f"{_times(least, first)}× at {percent(least['top1'], 1)}; the draft’s precision "
        "moves the acceptance by at most "
        f"{counted(round(100 * (max(drafts) - min(drafts))), 'point')}."
    )


def _times(row: Row, first: Row) -> str:
    """The gain over speculation in float32."""
    return f"{row['over_reference'] / first['over_reference']:.2f}"


STUDY = Study(
    name="precision",
    title="Precision of weights",
    question="What do f32, FP16, INT8 and INT4 weights of target and draft cost in quality, and "
    "gain in time and memory?",
    needs="the float32 checkpoints of both models; without them, an IR’s own weights, unpacked, "
    "are the reference",
    usage="--target CHECKPOINT --draft CHECKPOINT",
    seconds=900,
    columns=(
        Column("pair", "Target + draft"),
        Column("text", "Text"),
        Column("slow", "Autoregressive", "ms per token"),
        Column("fast", "Speculative", "ms per token"),
        Column("speedup", "Speedup", "×"),
        Column("over_reference", "Speedup over f32 autoregression", "×"),
        Column("acceptance", "Accepted of tested", "%", 0),
        Column("memory", "Peak memory", "MB", 0),
        Column("top1", "Same top-1 as f32", "%", 1),
        Column("kl", "KL from f32", "nats per token", 5),
        Column("identical", "Identical to its autoregression", "%", 0),
    ),
    chart=Chart(
        kind="bars",
        x="pair",
        y=("over_reference",),
        series="text",
        level=even,
        reading="Speculative decoding over autoregression with f32 weights, which is the dashed "
        "line. Of each pair, the target’s weights stand first.",
    ),
    measure=_measure,
    conclude=_conclude,
)
