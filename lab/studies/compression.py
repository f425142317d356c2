"""Compression of the KV cache: lossy, by its precision, and lossless, by a general compressor.

The reference is the target with an f32 cache. Its greedy answers to prompts of all kinds are the
text: each precision is compared on the distributions there, and by the answers that it writes
itself.

Lossless: the blocks that these answers fill are compressed one by one with zlib, at its fastest
level. Where values have several bytes, the first bytes of all values stand together, then the
second ones, and so on, which compresses better.
"""

from __future__ import annotations

import statistics
import zlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from lab.prompts import FIRST
from lab.quality import Text, agreeing, compared, distributions, written
from lab.result import Chart, Column, Result, Row, Rows
from lab.study import Setup, Study
from pipeline.decoding.sampling import SamplingParams
from pipeline.runtime.kv_cache.paged import PAGED, PagedKVCache
from pipeline.runtime.kv_cache.precision import KVPrecision
from pipeline.words import percent

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.runtime.model import OVModel

_PRECISIONS = get_args(KVPrecision)
_MAX_NEW_TOKENS = 64
_LEVEL = 1  # of zlib


def packed(blocks: Sequence[NDArray[Any]]) -> tuple[float, float, float]:
    """Compresses each block, and checks that it comes back as it was.

    Returns:
        bytes before over bytes after; and the bytes before that are compressed, and restored, in a
        second.
    """
    before = after = 0
    compressing = restoring = 0.0
    for block in blocks:
        start = perf_counter()
        small = zlib.compress(_by_byte(block), _LEVEL)
        halfway = perf_counter()
        large = zlib.decompress(small)
        restoring += perf_counter() - halfway
        compressing += halfway - start
        assert large == _by_byte(block)
        before += block.nbytes
        after += len(small)
    return before / after, before / compressing, before / restoring


def _by_byte(block: NDArray[Any]) -> bytes:
    """The first bytes of all values, then the second ones, and so on."""
    return block.view(np.uint8).reshape(-1, block.itemsize).T.tobytes()


def _measure(setup: Setup) -> Generator[Result, None, None]:
    dolly = yield from setup.pair()
    tokenizer = dolly.tokenizer
    prompts = [tokenizer.ask(*prompt) for prompt in FIRST]
    result = Result(pair=dolly.about, planned=len(_PRECISIONS))
    texts: list[Text] = []
    expected: list[NDArray[np.float32]] = []
    for precision in _PRECISIONS:
        yield replace(result, doing=f"compiling for {precision}")
        model = setup.compiled(setup.choice.pair.target, PAGED.name, precision)
        answers, got = list[Text](), list[NDArray[np.float32]]()
        for prompt in prompts:
            answers.append(written(model, prompt, SamplingParams(), _MAX_NEW_TOKENS, tokenizer))
            yield result
        texts = texts or answers
        for text in texts:
            got.append(distributions(model, text, tokenizer.size))
            yield result
        expected = expected or got
        quality = compared(got, expected)
        ratio, compressed, restored = packed(
            [block.copy() for text in texts for block in _blocks(model, text)]
        )
        megabytes = _megabytes(model)
        result = result.measured(
            {
                "precision": precision,
                "mb": megabytes,
                "top1": quality.top1,
                "kl": quality.kl,
                "agreeing": statistics.mean(map(agreeing, texts, answers)),
                "ratio": ratio,
                "lossless_mb": megabytes / ratio,
                "compressed": compressed / 1e6,
                "restored": restored / 1e6,
            }
        )
        yield result


def _blocks(model: OVModel, text: Text) -> Iterator[NDArray[Any]]:
    """The full blocks of keys and values of a text."""
    sequence = model.sequence()
    sequence.forward([*text.prompt, *text.answer], logits_to_keep=0)
    assert isinstance(sequence.cache, PagedKVCache)
    yield from sequence.cache.full_blocks()


def _megabytes(model: OVModel) -> float:
    """Of a thousand tokens."""
    sequence = model.sequence()
    sequence.forward([0], logits_to_keep=0)
    return sequence.kv_bytes / 1e6 * 1000 / (PAGED.block_size or 1)


def _conclude(rows: Rows) -> str:
    each = {row["precision"]: row for row in rows}
    whole, half, byte, nibble = (each[precision] for precision in _PRECISIONS)
    saved = 1 - 1 / half["ratio"]
    added = 1e3 * half["mb"] / half["restored"]
    return (
        f"Beside f32, u8 takes {_share(byte, whole)} of the memory and keeps the most likely token "
        f"at {percent(byte['top1'], 1)} of positions, u4 {_share(nibble, whole)} and "
        f"{percent(nibble['top1'], 1)}. Lossless compression would save {percent(saved)} "
        f"of f16, and decompression add {added:.0f} ms to each step at 1,000 tokens: it is not "
        "used."
    )


def _share(row: Row, whole: Row) -> str:
    return percent(row["mb"] / whole["mb"])


STUDY = Study(
    name="compression",
    title="Compression of the KV cache",
    question="What does a quantised KV cache save in memory and cost in quality, and what would "
    "lossless compression save?",
    seconds=40,
    columns=(
        Column("precision", "Precision"),
        Column("mb", "Memory of 1,000 tokens", "MB"),
        Column("top1", "Same top-1 as f32", "%", 1),
        Column("kl", "KL from f32", "nats per token", 5),
        Column("agreeing", "Answer that is the same, from its start", "%", 0),
        Column("ratio", "Lossless ratio", "×"),
        Column("lossless_mb", "Memory, if compressed", "MB"),
        Column("compressed", "Compression", "MB/s", 0),
        Column("restored", "Decompression", "MB/s", 0),
    ),
    chart=Chart(
        kind="lines",
        x="mb",
        y=("top1",),
        series="precision",
        reading="Up is nearer to f32, left is smaller. Keys and values in f16 are what the pair is "
        "shipped with.",
    ),
    measure=_measure,
    conclude=_conclude,
)
