"""The memory of a pair's KV caches: how much their pools of blocks hold, and the limit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Protocol, runtime_checkable
from weakref import WeakSet

from pipeline.environment import MemoryUse, PoolUse
from pipeline.errors import UserError
from pipeline.progress import in_bytes


class Pool(Protocol):
    """A pool of blocks, as `KVMemory` sees it."""

    @property
    def nbytes(self) -> int:
        """Bytes of all its blocks, in use or not."""
        ...

    @property
    def use(self) -> PoolUse:
        """The pool as it is now."""
        ...

    def trim(self) -> None:
        """Returns memory beyond the last block in use, unless the pool is at work."""
        ...


@runtime_checkable
class Pooled(Protocol):
    """What makes caches whose blocks are in one pool."""

    @property
    def pool(self) -> Pool: ...


class KVMemory:
    """The pools of a pair's models, and the limit that they share.

    Args:
        limit: bytes of all pools together; None without a limit. While a pool is copied to one of
            another size both exist, and only the new one counts.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._pools: WeakSet[Pool] = WeakSet()
        self._growing = Lock()

    @property
    def held(self) -> int:
        """Bytes of all pools."""
        return sum(pool.nbytes for pool in self._pools)

    def uses(self) -> tuple[MemoryUse, ...]:
        """What the blocks in use hold of the limit; empty without one."""
        if self.limit is None:
            return ()
        uses = [pool.use for pool in self._pools]
        used = sum(use.used * use.pool_bytes // use.blocks for use in uses if use.blocks)
        remedy = "Shorten the text or the answer, or start with a higher --kv-memory"
        return (MemoryUse("the KV caches", used, self.limit, remedy),)

    def add(self, pool: Pool) -> None:
        """Counts a pool from now on, for as long as it exists."""
        self._pools.add(pool)

    @contextmanager
    def room(self, least: int, most: int) -> Iterator[int]:
        """The bytes by which a pool may grow now: `most`, or what the limit leaves of it. No other
        pool grows meanwhile.

        Raises:
            UserError: the limit leaves less than `least`, even after other pools were trimmed.
        """
        with self._growing:
            if self.limit is None:
                yield most
                return
            if self.held + least > self.limit:
                for pool in list(self._pools):
                    pool.trim()
            left = self.limit - self.held
            if left < least:
                remedy = "the KV caches need more; shorten the text or the answer, or start with a"
                raise UserError("kv-memory", in_bytes(self.limit), f"{remedy} higher --kv-memory")
            yield min(most, left)


def parse_bytes(text: str) -> int:
    """The bytes of a size such as "200MB" or "1.5 GB".

    Raises:
        UserError: it is none.
    """
    number, unit = text.strip()[:-2].strip(), text.strip()[-2:].upper()
    try:
        size = float(number) * {"MB": 1e6, "GB": 1e9}[unit]
        if 1 <= size < 1e15:  # NaN fails every comparison
            return int(size)
    except (ValueError, KeyError):
        pass
    raise UserError("kv-memory", text, "choose a size such as 200MB or 1.5GB")
