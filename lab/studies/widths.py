"""The time of a target's forward pass by its number of tokens: is decoding memory-bound?

A forward pass of several tokens reads the weights once, as a pass of one token does. Where reading
them takes most of the time, the others are nearly free; elsewhere they cost what computing them
takes.
"""

from __future__ import annotations

import statistics
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np

from lab.result import Chart, Column, Result, Row, Rows
from lab.study import Setup, Study
from pipeline.environment import environment
from pipeline.words import percent

WIDTHS = range(1, 10)  # tokens: the newest, and up to eight drafted ones
_CONTEXT = 128  # tokens in the cache
_COMPUTING = 128  # tokens of a pass that computes rather than waits for memory
_REPEATS = 12
_TRIADS = 8
_TOKEN = 17  # any token: the time does not depend on it
_FLOATS = 1 << 24  # per array and thread: 64 MB, larger than any CPU cache
_BYTES = 5 * 4  # per element of a triad


def rows_of(
    name: str, read_bytes: int, seconds: Mapping[int, Sequence[float]], bandwidth: float
) -> Iterator[Row]:
    """A row for each of `WIDTHS`.

    Args:
        name: of the model.
        read_bytes: of weights and cache that a pass reads.
        seconds: of passes of so many tokens.
        bandwidth: bytes per second.
    """
    medians = {count: 1e3 * statistics.median(each) for count, each in seconds.items()}
    memory = 1e3 * read_bytes / bandwidth
    for count in WIDTHS:
        computing = medians[_COMPUTING] * count / _COMPUTING
        yield {
            "model": name,
            "tokens": count,
            "ms": medians[count],
            "relative": medians[count] / medians[1],
            "separate": count * medians[1],
            "memory": memory,
            "of_memory": memory / medians[count],
            "compute": computing,
            "of_compute": computing / medians[count],
        }


def triads(threads: int, repeats: int) -> Iterator[float]:
    """Measures the bandwidth of memory by a = b + s·c, as STREAM does (McCalpin 1995), on that many
    threads at once, over arrays beyond any CPU cache. Yields bytes per second.
    """
    arrays = [tuple(np.ones(_FLOATS, np.float32) for _ in range(3)) for _ in range(threads)]

    def triad(abc: tuple[np.ndarray, ...]) -> None:
        a, b, c = abc
        np.multiply(c, np.float32(0.5), out=a)  # reads c, writes a
        np.add(a, b, out=a)  # reads a and b, writes a

    with ThreadPoolExecutor(threads) as pool:
        for _ in range(repeats):
            start = perf_counter()
            list(pool.map(triad, arrays))
            yield _BYTES * _FLOATS * threads / (perf_counter() - start)


def measured(
    models: Sequence[tuple[str, Path]], repeats: int, result: Result
) -> Generator[Result, None, None]:
    """Measures the passes of models, one after the other. Each pass follows one of its own size.

    Args:
        models: their names and the folders of their IRs.
        repeats: of each pass.
        result: what is known before; its pair and its beginning are kept.
    """
    from pipeline.runtime.model import OVModel

    threads, rates = int(environment()["threads"] or 1), list[float]()
    result = replace(result, planned=_TRIADS + len(models) * repeats)
    for rate in triads(threads, _TRIADS):
        rates.append(rate)
        result = result.measured()
        yield result
    for name, folder in models:
        yield replace(result, doing=f"compiling {name}")
        model = OVModel(folder)
        model.warm_up()
        sequence = model.sequence()
        sequence.forward([_TOKEN] * _CONTEXT, 0)
        read, before = model.pass_bytes + sequence.kv_bytes, result.rows
        seconds: dict[int, list[float]] = {count: [] for count in (*WIDTHS, _COMPUTING)}
        for _ in range(repeats):
            for count, times in seconds.items():
                sequence.time_forward(count)
                times.append(sequence.time_forward(count))
            rows = rows_of(name, read, seconds, statistics.median(rates))
            result = replace(result.measured(), rows=(*before, *rows))
            yield result


def _measure(setup: Setup) -> Generator[Result, None, None]:
    dolly = yield from setup.pair()
    target = setup.choice.pair.target
    folder = setup.choice.store.folder(target)
    name = f"{target.name}, {dolly.about['target']['weights']}"
    result = Result(pair=dolly.about)
    yield from measured([(name, folder)], setup.repeats or _REPEATS, result)


def _conclude(rows: Rows) -> str:
    each = {row["tokens"]: row for row in rows}
    one, five = each[1], each[5]
    return (
        f"A pass of five tokens takes {five['relative']:.2f} times as long as one of a "
        f"single token, not five times. Reading weights and cache from memory takes "
        f"{percent(one['of_memory'])} of the time of a single token at the measured bandwidth, "
        f"computing {percent(one['of_compute'])}; for five tokens, "
        f"{percent(five['of_memory'])} and {percent(five['of_compute'])}."
    )


COLUMNS = (
    Column("model", "Target"),
    Column("tokens", "Tokens", digits=0),
    Column("ms", "Measured", "ms"),
    Column("relative", "Over one token", "×"),
    Column("separate", "As many single tokens", "ms"),
    Column("memory", "Reading from memory, at least", "ms"),
    Column("of_memory", "Share of reading", "%", 0),
    Column("compute", "Computing, at least", "ms"),
    Column("of_compute", "Share of computing", "%", 0),
)
READING = (
    "Reading: the bytes of weights and cache over the bandwidth of memory, measured by a triad. "
    "Computing: the share of a pass of 128 tokens, which computes most of the time."
)

STUDY = Study(
    name="widths",
    title="Several tokens in one pass",
    question="How much longer does a forward pass of the target take for several tokens than for "
    "one, and does memory or computing limit it?",
    needs="0.4 GB of memory to measure its bandwidth",
    seconds=45,
    columns=COLUMNS,
    chart=Chart(
        kind="lines",
        x="tokens",
        y=("ms", "separate", "memory", "compute"),
        axis="milliseconds of a pass",
        reading=READING,
    ),
    measure=_measure,
    conclude=_conclude,
)
