"""An engine whose models run in replicas; imports no Ray."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime
from typing import Protocol

from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.drafters import find_drafter
from pipeline.decoding.events import SPECULATIVE, FinishReason
from pipeline.decoding.race import Mode, check_mode, lanes_of
from pipeline.environment import MemoryUse, environment
from pipeline.models.pairs import Pair
from pipeline.progress import Progress
from pipeline.request import Request
from pipeline.runtime.kv_cache.registry import find_policy
from pipeline.task import Task
from pipeline.text.tokenizer import Tokenizer
from pipeline.trace.record import Trace
from pipeline.trace.recording import Recording, Update
from serving.replica import Description, Report

_KEPT = 60.0  # seconds that a report of memory counts; an idle replica may be lost meanwhile
_PERIOD = 0.05  # seconds between two looks at what a replica has sent


class Response(Protocol):
    """What a replica streams, which may raise what went wrong there. Cancelling ends it, from any
    thread, and never raises.
    """

    def __iter__(self) -> Iterator[Trace | Report]: ...

    def cancel(self) -> None: ...


MemoryReports = dict[str, tuple[float, tuple[MemoryUse, ...]]]  # by replica; when, and what
Call = Callable[[Request, Mode, AnswerMemory | None], Response]


class Replicas:
    """An engine (`pipeline.engine`), whose prompts and texts are made here.

    Args:
        pair: that the replicas have loaded.
        tokenizer: of its target.
        description: of any of them.
        call: has a request answered by one that is free.
    """

    def __init__(
        self, pair: Pair, tokenizer: Tokenizer, description: Description, call: Call
    ) -> None:
        self.pair, self.about = pair, description.about
        self._tokenizer, self._call = tokenizer, call
        self._context_length = description.context_length
        self._environment = environment()  # until a replica has sent its own
        self._memory: MemoryReports = {}

    def prepare(self, request: Request) -> Generator[Progress, None, None]:
        """Nothing: a replica has prepared itself before it is described."""
        yield from ()

    def start(
        self, request: Request, mode: Mode = "race", memory: AnswerMemory | None = None
    ) -> ReplicaRun:
        """A run; no replica is asked before it is iterated.

        Raises:
            UserError: the prompt does not fit into the context, the pair lacks what the drafter
                needs, or there is no such mode.
        """
        check_mode(mode)
        if SPECULATIVE in lanes_of(mode):
            self.pair.check_drafter(request.drafter)
        tokenizer = self._tokenizer
        prompt = tokenizer.ask(request.instruction, request.context)
        unbounded = find_policy(request.kv_cache).unbounded
        request.budget(len(prompt), None if unbounded else self._context_length)
        about = {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "environment": self._environment,
            "pair": self.about,
            "request": request.recorded,
            "prompt_tokens": tuple(prompt),
        }
        copied = memory if find_drafter(request.drafter).copies_answers else None
        recording = Recording(
            lanes_of(mode), tokenizer.detokenizer, tokenizer.piece, request.stop, about
        )
        return ReplicaRun(recording, lambda: self._call(request, mode, copied), self._memory)

    def token_bytes(self, token: int) -> bytes:
        return self._tokenizer.token_bytes(token)

    def memory_uses(self) -> tuple[MemoryUse, ...]:
        """What the replicas used in their latest reports, of the last minute."""
        since, reports = time.monotonic() - _KEPT, [*self._memory.values()]
        return tuple(use for when, uses in reports if when >= since for use in uses)

    def unload(self) -> None:
        """Nothing: the pair of replicas is fixed."""


class ReplicaRun:
    """A request being answered by a replica; its trace is recorded here from the updates.

    Args:
        recording: of its lanes, empty.
        call: has it answered.
        memory: receives what each replica uses; a replica leaves it once a run there has failed.
    """

    def __init__(
        self, recording: Recording, call: Callable[[], Response], memory: MemoryReports
    ) -> None:
        self._recording, self._call, self._memory = recording, call, memory

    def __iter__(self) -> Generator[Update | Progress | None, None, None]:
        """Has the request answered. A lane left without an end gets one in the trace.

        Raises:
            UserError: no replica is free, or the one at work was lost; or as in the replica.
        """
        reason, response = FinishReason.CANCELLED, None
        try:
            response = self._call()
            for message in _polled(response):
                match message:
                    case None:
                        yield None
                    case Trace():
                        self._begin(message)
                    case Report():
                        self._memory[self._replica] = time.monotonic(), message.memory
                        yield from map(self._recorded, message.updates)
        except Exception:
            reason = FinishReason.ERROR
            self._memory.pop(self._replica, None)  # it may be gone, and its memory with it
            raise
        finally:
            self._recording.end(reason)
            if response is not None:
                response.cancel()

    def close(self) -> None:
        """Marks a run that was never iterated as cancelled; one that has ended stays as it is."""
        self._recording.end(FinishReason.CANCELLED)

    def trace(self) -> Trace:
        """The record as it stands; from any thread."""
        return self._recording.trace()

    def _begin(self, trace: Trace) -> None:
        """Takes over where and when it runs, and with which models."""
        there = {"created": trace.created, "environment": trace.environment, "pair": trace.pair}
        self._recording.about |= there

    def _recorded(self, update: Update | Progress) -> Update | Progress:
        """The update with the texts that its replica has not made."""
        if isinstance(update, Progress):
            return update
        return self._recording.record(update.lane, update.event, update.pools)

    @property
    def _replica(self) -> str:
        """Where it runs; empty until it begins there."""
        return str(self._recording.about["environment"].get("replica", ""))


def _polled(response: Response) -> Iterator[Trace | Report | None]:
    """What the response yields; None while it is waited for."""

    def listen() -> Generator[Trace | Report, None, None]:
        yield from response

    task: Task[Trace | Report, None] = Task(listen(), name="replica")
    for messages in task.follow(_PERIOD):
        yield from messages
        if not messages:
            yield None
