"""The bandwidth of the machine's memory."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import numpy as np

_FLOATS = 1 << 24  # per array and thread: 64 MB, larger than any CPU cache
_BYTES = 5 * 4  # per element of a triad


def triads(threads: int, repeats: int) -> Iterator[float]:
    """Measures a = b + s·c, as STREAM does (McCalpin 1995), on that many threads at once, over
    arrays beyond any CPU cache. Yields bytes per second.
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
