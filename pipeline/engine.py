"""Protocols of an engine, as the page, the APIs and the experiments use it.

`pipeline.dolly` runs the models in this process. An engine elsewhere is a package of its own.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol, runtime_checkable

from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.economics import Measurement
from pipeline.decoding.race import Mode
from pipeline.environment import MemoryUse
from pipeline.errors import UserError
from pipeline.models.pairs import Pair
from pipeline.progress import Progress
from pipeline.request import Request
from pipeline.trace.record import Trace
from pipeline.trace.recording import Update


class Running(Protocol):
    """One request being answered. It is iterated once; the rest may be called from any thread."""

    def __iter__(self) -> Generator[Update | Progress | None, None, None]:
        """Prepares and runs it; yields None while it waits. Closing the generator cancels the run.

        Raises:
            UserError: there is not enough memory, or the models cannot have such caches.
        """
        ...

    def close(self) -> None:
        """Marks a run that was never iterated as cancelled."""
        ...

    def trace(self) -> Trace:
        """The record as it stands. Its `pair` is the engine's until the run is prepared."""
        ...


class Engine(Protocol):
    """A loaded pair."""

    @property
    def pair(self) -> Pair: ...

    @property
    def about(self) -> dict[str, Any]:
        """The trace's `pair`, of a run with the default caches."""
        ...

    def prepare(self, request: Request) -> Generator[Progress, None, object]:
        """Compiles, warms up and measures what such a request needs, unless that is done; yields
        each stage before it begins.

        Raises:
            UserError: as when a run is iterated.
        """
        ...

    def start(
        self, request: Request, mode: Mode = "race", memory: AnswerMemory | None = None
    ) -> Running:
        """A run. Before it is iterated, nothing is compiled, measured or computed, and no cache is
        allocated.

        Args:
            request: what to answer, and how.
            mode: which lanes, and in which order.
            memory: the earlier texts that a drafter may copy.

        Raises:
            UserError: the prompt does not fit into the context, the memory of such caches should be
                limited and cannot be, the pair lacks what the drafter needs, or there is no such
                mode.
        """
        ...

    def token_bytes(self, token: int) -> bytes:
        """The text of a single token in UTF-8, of which it may have only a part of a character."""
        ...

    def memory_uses(self) -> tuple[MemoryUse, ...]:
        """What is used now of each limit of memory."""
        ...

    def unload(self) -> None:
        """Frees the models, once the runs that use them have ended. A later run compiles them."""
        ...


@runtime_checkable
class LocalEngine(Engine, Protocol):
    """An engine whose models are in this process, so that they can also be measured."""

    @property
    def measured(self) -> Measurement | None:
        """The costs as measured last, with the default caches; None before."""
        ...

    def measure(self, request: Request) -> Generator[Progress | Measurement, None, None]:
        """Measures the costs of forward passes with a request's caches; finally yields them."""
        ...


def local(engine: Engine, what: str) -> LocalEngine:
    """The engine, for what needs more of its models than answers.

    Raises:
        UserError: its models are elsewhere.
    """
    if isinstance(engine, LocalEngine):
        return engine
    raise UserError("experiment", what, "not on this server, whose models are in replicas")
