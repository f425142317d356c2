"""The precision of weights: speed, memory, acceptance and quality, of target and draft.

The reference is the target in float32. Quality is measured on its own answers, greedy and sampled.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lab.answers import Answers, Condition, answered, tabulated
from lab.footprint import Footprint
from lab.prompts import KINDS
from lab.quality import Quality, qualities
from lab.result import Cell, Chart, Column, Result, Row, Rows, even, number
from lab.study import Setup, Study
from lab.weights import in_precision
from pipeline.decoding.drafters.model import MODEL
from pipeline.decoding.sampling import SamplingParams
from pipeline.models.pairs import Model, Weights
from pipeline.request import Request
from pipeline.words import counted, percent

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly
    from pipeline.runtime.model import OVModel

_EVERY: tuple[Weights, ...] = ("f32", "fp16", "int8", "int4")
_REFERENCE: Weights = "f32"
_USUAL: Weights = "int8"
_PAIRS: tuple[tuple[Weights, Weights], ...] = (  # of target and draft
    *((weights, weights) for weights in _EVERY),
    *((_USUAL, weights) for weights in _EVERY if weights != _USUAL),
)
_MAX_NEW_TOKENS = 60
_REPEATS = 3
_TEXTS: Mapping[str, Mapping[str, Any]] = {  # by how they are written
    "greedy": {},
    "sampled": {"temperature": 0.7, "top_p": 0.92},
}
_AUTOREGRESSIVE = "autoregressive"

Qualities = Mapping[tuple[Weights, str], Quality]  # of a target, on a kind of text
Peaks = Mapping[tuple[Weights, Weights], int | None]


def _measure(setup: Setup) -> Generator[Result, None, None]:
    models: dict[tuple[str, Weights], Model] = {}
    for role, model in (
        ("target", setup.choice.pair.target),
        ("draft", setup.choice.pair.required_draft),
    ):
        for weights in _EVERY:
            models[role, weights] = yield from in_precision(model, weights, setup.choice.store)
    dollies: dict[tuple[Weights, Weights], Dolly] = {}
    for target, draft in _PAIRS:
        pair = replace(
            setup.choice.pair,
            target=models["target", target],
            draft=models["draft", draft],
            block=None,
        )
        dollies[target, draft] = yield from setup.other(pair)
    requests = [
        Request(*prompts[0], max_new_tokens=_MAX_NEW_TOKENS, drafter=MODEL.name)
        for prompts in KINDS.values()
    ]
    found: dict[tuple[Weights, str], Quality] = {}
    tokenizer = dollies[_PAIRS[0]].tokenizer
    targets: dict[str, OVModel] = {
        weights: dollies[weights, weights].models().target for weights in _EVERY
    }
    for text, shaping in _TEXTS.items():
        params = SamplingParams(**shaping)
        of_text = yield from qualities(targets, _REFERENCE, tokenizer, params, _MAX_NEW_TOKENS)
        found |= {(weights, text): of_text[weights] for weights in _EVERY}
    peaks = yield from _peaks(setup, models, dollies[_PAIRS[0]], requests[0])
    conditions = [
        Condition(_name(pair, text, mode), dolly, mode, _TEXTS[text])
        for pair, dolly in dollies.items()
        for text in _TEXTS
        for mode in ("autoregressive", "speculative")
    ]
    answers = answered(conditions, requests, setup.repeats or _REPEATS)
    about = dollies[_PAIRS[0]].about
    yield from tabulated(answers, partial(_rows, found, peaks), about)


def _name(pair: tuple[Weights, Weights], text: str, mode: str) -> str:
    return " ".join((*pair, text, mode))


def _peaks(
    setup: Setup, models: Mapping[tuple[str, Weights], Model], dolly: Dolly, request: Request
) -> Generator[Result, None, Peaks]:
    """Peak bytes of speculative decoding with each pair of precisions."""
    found: dict[tuple[Weights, Weights], int | None] = {}
    store = setup.choice.store
    for target, draft in _PAIRS:
        yield Result(doing=f"memory of {target} and {draft}")
        found[target, draft] = Footprint(
            target=store.folder(models["target", target]),
            draft=store.folder(models["draft", draft]),
            prompt=dolly.tokenizer.ask(request.instruction, request.context),
            max_new_tokens=request.max_new_tokens,
        ).peak_bytes()
    return found


def _rows(qualities: Qualities, peaks: Peaks, answers: Answers) -> Iterator[Row]:
    for pair in _PAIRS:
        target, draft = pair
        for text in _TEXTS:
            slow, fast = (_name(pair, text, mode) for mode in ("autoregressive", "speculative"))
            times = [answers.seconds_per_token(name) for name in (slow, fast)]
            if None in times:
                continue
            reference = _name(_PAIRS[0], text, _AUTOREGRESSIVE)
            peak, quality = peaks[pair], qualities[target, text]
            row: dict[str, Cell] = {
                "pair": f"{target} + {draft}",
                "text": text,
                "slow": 1e3 * number(times[0]),
                "fast": 1e3 * number(times[1]),
                "speedup": answers.speedup(fast, slow),
                "over_reference": answers.speedup(fast, reference),
                "acceptance": answers.acceptance_rate(fast),
                "memory": None if peak is None else peak / 1e6,
                "top1": quality.top1,
                "kl": quality.kl,
                "identical": answers.identical(fast, slow) if text == "greedy" else None,
            }
            yield row


def _conclude(rows: Rows) -> str:
    greedy = {row["pair"]: row for row in rows if row["text"] == "greedy"}
    first, usual, least = (greedy[f"{w} + {w}"] for w in (_REFERENCE, _USUAL, _EVERY[-1]))
    gains = [number(row["over_reference"]) for row in (usual, least)]
    drafts = [number(greedy[f"{_USUAL} + {draft}"]["acceptance"]) for draft in _EVERY]
    return (
        f"Beside speculation in f32, int8 for both is {_times(gains[0], first)}× as fast and keeps "
        f"the most likely token at {percent(number(usual['top1']), 1)} of positions, int4 "
        f"{_times(gains[1], first)}× at {percent(number(least['top1']), 1)}; the draft’s precision "
        "moves the acceptance by at most "
        f"{counted(round(100 * (max(drafts) - min(drafts))), 'point')}."
    )


def _times(gain: float, first: Row) -> str:
    """A gain over autoregression in float32, as one over speculation in float32."""
    return f"{gain / number(first['over_reference']):.2f}"


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
