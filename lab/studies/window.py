"""Selective caching: what a cache of some of the tokens costs in quality, by the rule that selects
them.

The reference is the cache that the pair is shipped with, which keeps every token. All read the
first 512, 1,024 … tokens of one text, this project's own documentation, and are compared on the
distributions at its last tokens, and by the text with which they go on.
"""

from __future__ import annotations

import statistics
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lab.quality import Text, agreeing, compared, distributions, written
from lab.result import Chart, Column, Result, Row, Rows
from lab.study import Setup, Study
from pipeline.decoding.sampling import SamplingParams
from pipeline.runtime.kv_cache.mass import MASS, RECENT
from pipeline.runtime.kv_cache.paged import PAGED
from pipeline.runtime.kv_cache.window import CAPACITY, WINDOW
from pipeline.words import percent

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.runtime.model import OVModel

_LENGTHS = (512, 1024, 2048, 4096)  # tokens of the text
_COMPARED = 128  # of them, the last
_MAX_NEW_TOKENS = 64
_ROOT = Path(__file__).resolve().parents[2]
_DOCUMENTS = ("docs/results.md", "docs/training.md", "docs/hosting.md")
_KINDS = {"whole": PAGED.name, "window": WINDOW.name, "mass": MASS.name}


def _measure(setup: Setup) -> Generator[Result, None, None]:
    dolly = yield from setup.pair()
    tokenizer = dolly.tokenizer
    documents = [(_ROOT / name).read_text(encoding="utf-8") for name in _DOCUMENTS]
    tokens = tokenizer.ask("\n".join(documents))
    lengths = [n for n in _LENGTHS if n + _MAX_NEW_TOKENS <= min(len(tokens), dolly.context_length)]
    result = Result(pair=dolly.about, planned=len(lengths) * len(_KINDS))
    models: dict[str, OVModel] = {}
    for kept, kind in _KINDS.items():
        yield replace(result, doing=f"compiling for {kind}")
        models[kept] = setup.compiled(setup.choice.pair.target, kind)
    for length in lengths:
        begun = tokens[:length]
        text = Text(begun[:-_COMPARED], begun[-_COMPARED:])
        whole: tuple[NDArray[np.float32], Text] | None = None
        for kept, model in models.items():
            got = distributions(model, text, tokenizer.size)
            yield result
            answer = written(model, begun, SamplingParams(), _MAX_NEW_TOKENS, tokenizer)
            yield result
            whole = whole or (got, answer)
            quality = compared([got], [whole[0]])
            row: Row = {
                "tokens": length,
                "kept": kept,
                "top1": quality.top1,
                "kl": quality.kl,
                "agreeing": agreeing(whole[1], answer),
                "loss": _loss(got, text),
                "mb": _megabytes(model, length),
            }
            result = result.measured(row)
            yield result


def _loss(probs: NDArray[np.float32], text: Text) -> float:
    """Nats per token of the text."""
    taken = probs[np.arange(len(text.answer)), text.answer]
    return float(-np.log(np.maximum(taken, 1e-30)).mean())


def _megabytes(model: OVModel, length: int) -> float:
    sequence = model.sequence()
    sequence.forward([0] * length, logits_to_keep=0)
    return sequence.kv_bytes / 1e6


def _conclude(rows: Rows) -> str:
    last = {str(row["kept"]): row for row in rows[-len(_KINDS) :]}
    mean = {kept: [_mean(rows, kept, name) for name in ("loss", "top1")] for kept in _KINDS}
    (whole, _), (window, window_top1), (mass, mass_top1) = mean.values()
    of_window, of_mass = (last[kept]["loss"] - last["whole"]["loss"] for kept in ("window", "mass"))
    return (
        f"Of {last['whole']['tokens']:,.0f} tokens, {CAPACITY} take "
        f"{last['mass']['mb']:.1f} MB instead of {last['whole']['mb']:.1f}. "
        f"Selecting them by attention mass is {'better' if mass < window else 'no better'} than "
        f"the first block and the last ones: on average over the lengths of the text, it adds "
        f"{mass - whole:.2f} nats per token to the loss and keeps the most likely token at "
        f"{percent(mass_top1)} of positions, the window {window - whole:.2f} and "
        f"{percent(window_top1)}; in the longest text they add {of_mass:.2f} and {of_window:.2f}. "
        "Both are lossy, and off by default."
    )


def _mean(rows: Rows, kept: str, name: str) -> float:
    return statistics.fmean(row[name] for row in rows if row["kept"] == kept)


STUDY = Study(
    name="window",
    title="Selective caching",
    question="What do a cache of the first block and the last tokens, and one of the tokens "
    "attended to most, cost in quality, and save in memory?",
    seconds=150,
    columns=(
        Column("tokens", "Text", "tokens", 0),
        Column("kept", "Cache"),
        Column("top1", "Same top-1", "%", 1),
        Column("kl", "KL from the whole cache", "nats per token", 4),
        Column("agreeing", "Answer that is the same, from its start", "%", 0),
        Column("loss", "Loss", "nats per token", 3),
        Column("mb", "Memory", "MB", 1),
    ),
    chart=Chart(
        kind="lines",
        x="tokens",
        y=("loss",),
        series="kept",
        reading="The nearer to the whole cache, the better. The other two keep at most "
        f"{CAPACITY} tokens: a window the first block and the last ones, mass the last "
        f"{RECENT} and those before them that were attended to most.",
    ),
    measure=_measure,
    conclude=_conclude,
)
