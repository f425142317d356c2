"""A replica: a loaded pair on cores of its own, which answers one request at a time.

Ray Serve calls it in a process of its own; it knows nothing of Ray.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.race import Mode
from pipeline.environment import MemoryUse
from pipeline.errors import UserError
from pipeline.models.choice import Choice
from pipeline.progress import Progress
from pipeline.request import Request
from pipeline.run import Run
from pipeline.trace.record import Trace
from pipeline.trace.recording import Update
from serving.cores import claim

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly

_WARM = "Why is the sky blue?"  # answered before any visitor's: measures the costs, and warms up
_PERIOD = 0.05  # seconds between two reports; what sends them has the cores of the models


@dataclass(frozen=True, slots=True)
class Description:
    """A replica's models: the trace's `pair`, and the tokens that they can attend to."""

    about: dict[str, Any]
    context_length: int


@dataclass(frozen=True, slots=True)
class Report:
    """What happened in a run since the last report, and the memory in use."""

    updates: tuple[Update | Progress, ...]
    memory: tuple[MemoryUse, ...]


class Replica:
    """A loaded, warm pair on cores of its own.

    Args:
        choice: of the pair, whose models are in the store of this machine.
        cores: number of cores.
        load: compiles the pair; None does as `Dolly.of`.
    """

    def __init__(
        self, choice: Choice, cores: int, load: Callable[[Choice], Dolly] | None = None
    ) -> None:
        self._id = uuid.uuid4().hex[:8]
        self._models = ThreadPoolExecutor(1)  # so that no two runs ever compute at once
        self._failure: UserError | None = None
        try:
            self._cores = claim(cores)
            self._cores.pin()
            if load is None:
                from pipeline.dolly import Dolly

                load = Dolly.of
            self._dolly = load(replace(choice, threads=cores))
            self._dolly.start(Request(_WARM, max_new_tokens=4, **choice.pair.settings)).finish()
        except UserError as error:  # Ray Serve would try again, and hide it in its log
            self._failure = error

    async def describe(self) -> Description | UserError:
        """Its models, or why it has none."""
        return self._failure or Description(self._dolly.about, self._dolly.context_length)

    async def run(
        self, request: Request, mode: Mode, memory: AnswerMemory | None
    ) -> AsyncGenerator[Trace | Report, None]:
        """Answers a request: first the trace as it begins, then reports, and before those of the
        lanes the trace of the prepared run. Closing it ends the run.

        Raises:
            UserError: as `Dolly.start`, or the pair could not be loaded.
        """
        if self._failure:
            raise self._failure
        loop = asyncio.get_running_loop()
        run = await loop.run_in_executor(self._models, self._dolly.start, request, mode, memory)
        updates, place, preparing = iter(run), self._place, True
        try:
            yield _placed(run, place)
            while report := await loop.run_in_executor(self._models, self._report, updates):
                if preparing and isinstance(report.updates[-1], Update):
                    preparing = False
                    yield _placed(run, place)
                yield report
        finally:  # behind the report under way, if whoever listens has left
            await loop.run_in_executor(self._models, updates.close)

    @property
    def _place(self) -> dict[str, Any]:
        """For the trace's `environment`; `replica_began` are seconds since 1970."""
        return {
            "replica": self._id,
            "replica_cores": ", ".join(map(str, self._cores.ids)),
            "replica_began": time.time(),
        }

    def _report(self, updates: Iterator[Update | Progress]) -> Report | None:
        """The updates of a period, or until a stage of preparing begins; None at the end of the
        run.
        """
        until, made = time.monotonic() + _PERIOD, list[Update | Progress]()
        for update in updates:
            made.append(update)
            if isinstance(update, Progress) or time.monotonic() >= until:
                break
        return Report(tuple(made), self._dolly.memory_uses()) if made else None


def _placed(run: Run, place: dict[str, Any]) -> Trace:
    """The trace as it stands, with where it runs."""
    trace = run.trace()
    return replace(trace, environment=trace.environment | place)
