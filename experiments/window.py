"""Selective caching: what a cache of the first tokens and the last costs in quality.

The reference is the cache that the pair is shipped with, which keeps every token. Both read the
first 512, 1,024 … tokens of one text, this project's own documentation, and are compared on the
distributions at its last tokens, and by the text with which they go on.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from experiments.experiment import Experiment, Setup
from experiments.quality import Quality, Text, compared, distributions, written
from experiments.result import Cell, Chart, Column, Result, Rows, number
from pipeline.decoding.sampling import SamplingParams
from pipeline.errors import UserError
from pipeline.runtime.kv_cache.paged import PAGED
from pipeline.runtime.kv_cache.policy import UnsupportedPolicyError
from pipeline.runtime.kv_cache.window import CAPACITY, SINK, WINDOW
from pipeline.words import percent

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.runtime.model import OVModel

_LENGTHS = (512, 1024, 2048, 4096)  # tokens of the text
_COMPARED = 128  # of them, the last
_MAX_NEW_TOKENS = 64
_ROOT = Path(__file__).resolve().parents[1]
_DOCUMENTS = ("benchmarks/README.md", "training/README.md", "CONTRIBUTING.md")
_KINDS = (PAGED.name, WINDOW.name)


def _measure(setup: Setup) -> Generator[Result, None, None]:
    from pipeline.runtime.model import OVModel

    dolly = yield from setup.pair()
    tokenizer, pair = dolly.tokenizer, setup.choice.pair
    documents = [(_ROOT / name).read_text(encoding="utf-8") for name in _DOCUMENTS]
    tokens = tokenizer.ask("\n".join(documents))
    lengths = [n for n in _LENGTHS if n + _MAX_NEW_TOKENS <= min(len(tokens), dolly.context_length)]
    result = Result(pair=dolly.about, planned=len(lengths))
    models: dict[str, OVModel] = {}
    for kind in _KINDS:
        yield replace(result, doing=f"compiling for {kind}")
        try:
            models[kind] = OVModel(setup.choice.store.folder(pair.target), kind)
        except UnsupportedPolicyError as reason:
            remedy = f"has no {kind} cache ({reason}); choose another pair"
            raise UserError("pair", pair.name, remedy) from None
    asked = SamplingParams(), _MAX_NEW_TOKENS, tokenizer.size, tokenizer.end_ids
    for length in lengths:
        begun = tokens[:length]
        text = Text(begun[:-_COMPARED], begun[-_COMPARED:])
        got: dict[str, NDArray[np.float32]] = {}
        answers: dict[str, Text] = {}
        for kind, model in models.items():
            got[kind] = distributions(model, text, tokenizer.size)
            yield result
            (answers[kind],) = written(model, [begun], *asked)
            yield result
        whole, part = (got[kind] for kind in _KINDS)
        row: dict[str, Cell] = {
            "tokens": length,
            **_quality(compared([part], [whole])),
            "loss_whole": _loss(whole, text),
            "loss": _loss(part, text),
            "agreeing": _agreeing(*(answers[kind] for kind in _KINDS)),
            **{
                name: _megabytes(models[kind], length)
                for name, kind in zip(_MB, _KINDS, strict=True)
            },
        }
        result = replace(result, rows=(*result.rows, row), done=result.done + 1)
        yield result


_MB = ("mb_whole", "mb")


def _quality(quality: Quality) -> dict[str, Cell]:
    return {"top1": quality.top1, "kl": quality.kl}


def _loss(probs: NDArray[np.float32], text: Text) -> float:
    """Nats per token of the text."""
    taken = probs[np.arange(len(text.answer)), text.answer]
    return float(-np.log(np.maximum(taken, 1e-30)).mean())


def _agreeing(expected: Text, answer: Text) -> float:
    """The share of the expected answer, from its start, with which the answer agrees."""
    pairs = zip(answer.answer, expected.answer, strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return same / len(expected.answer)


def _megabytes(model: OVModel, length: int) -> float:
    sequence = model.sequence()
    sequence.forward([0] * length, logits_to_keep=0)
    return sequence.kv_bytes / 1e6


def _conclude(rows: Rows) -> str:
    short, long = rows[0], rows[-1]
    return (
        f"Of {number(long['tokens']):,.0f} tokens, the window of {CAPACITY} takes "
        f"{number(long['mb']):.1f} MB instead of {number(long['mb_whole']):.1f}; the most likely "
        f"token stays the same at {percent(number(long['top1']))} of positions (at "
        f"{number(short['tokens']):,.0f}: {percent(number(short['top1']))}), and the loss goes "
        f"from {number(long['loss_whole']):.2f} to {number(long['loss']):.2f} nats per token. It "
        "is lossy, and off by default."
    )


EXPERIMENT = Experiment(
    name="window",
    title="Selective caching",
    question="What does a cache of the first block and the last tokens cost in quality, and save "
    "in memory?",
    seconds=90,
    columns=(
        Column("tokens", "Text", "tokens", 0),
        Column("top1", "Same top-1", "%", 1),
        Column("kl", "KL from the whole cache", "nats per token", 4),
        Column("agreeing", "Answer that is the same, from its start", "%", 0),
        Column("loss_whole", "Loss, whole cache", "nats per token", 3),
        Column("loss", "Loss, window", "nats per token", 3),
        Column("mb_whole", "Whole cache", "MB", 1),
        Column("mb", "Window", "MB", 1),
    ),
    chart=Chart(
        kind="lines",
        x="tokens",
        y=_MB,
        axis="megabytes",
        reading=f"The window keeps {SINK} tokens of the beginning and the last ones, {CAPACITY} in "
        "all, and reads any text; what it costs is in the table.",
    ),
    measure=_measure,
    conclude=_conclude,
)
