"""A Dolly of table-driven models, with real decoders and real runs; its tokens read as told."""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace

import numpy as np

from lab.study import Setup
from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.economics import Costs, Measurement
from pipeline.decoding.events import Event, Step
from pipeline.decoding.lanes import Lanes
from pipeline.decoding.race import Mode, lanes_of, schedule_of
from pipeline.decoding.verification import find_verifier
from pipeline.environment import MemoryUse
from pipeline.models.choice import Choice
from pipeline.models.pairs import DEFAULT_PAIR, PAIRS, Example, Model, Pair
from pipeline.models.store import Store
from pipeline.progress import Progress
from pipeline.request import Request
from pipeline.run import Prepared, Run
from pipeline.text.stop import stop_matcher
from pipeline.trace.record import Trace
from pipeline.trace.recording import Recording
from tests.fakes import FakeBlock, FakeLM
from ui.run.action import Action, Asked
from ui.run.loader import Loader
from ui.tabs.registry import TABS

PAIR = Pair(
    name="fake",
    title="Fake pair",
    note="Tables, not models.",
    target=Model("fake/target"),
    draft=Model("fake/draft"),
    examples=(  # as many and as long as the page of the embedded pair has
        Example("An example", "Say something", "about this"),
        *PAIRS[DEFAULT_PAIR].examples[1:],
    ),
)
PROMPT = (1, 2)


class Everything(Store):
    """Has every model."""

    def obtain(self, model):
        return iter(())


def loader_of(dolly, pair=PAIR):
    """A loader that has `dolly` at once, or, of a future, when that does."""
    load = dolly.result if isinstance(dolly, Future) else lambda: dolly
    return Loader(Choice(pair, Everything()), lambda _: load())


def setup(dolly, request, **changes):
    """What an experiment is run on, with this pair and no other."""
    choice = Choice(PAIR, Everything())
    return Setup(choice=choice, request=request, load=lambda _: dolly, loaded=dolly, **changes)


class Elsewhere:
    """The engine of a Dolly whose models are in another process."""

    def __init__(self, dolly: "FakeDolly") -> None:
        for name in ("pair", "about", "prepare", "start", "token_bytes", "memory_uses", "unload"):
            setattr(self, name, getattr(dolly, name))


def action(name: str) -> Action:
    """The action of a tab that has this name."""
    return next(each for tab in TABS for each in tab.actions if each.name == name)


def asked(dolly, request, waiting=False) -> Asked:
    """What an action is started with."""
    return Asked(dolly, request, Choice(PAIR, Everything()), lambda _: dolly, waiting)


class FakeDolly:
    """Answers everything alike.

    Args:
        texts: what each token of the vocabulary reads as; none of them ends a text.
        pause: seconds before each event.

    Attributes:
        fails: raise in the middle of a run.
        goes_on: while it is cleared, runs wait before their next event.
        damaged: the target's logits are NaN.
        draft_s: seconds on the clock for each drafted token.
        memory: that it says is used.
        stages: of preparing a run.
        spread: of its measured costs.
    """

    pair = PAIR
    end_ids: frozenset[int] = frozenset()
    exact_widths = True

    def __init__(self, texts: Sequence[str], pause: float = 0.0) -> None:
        self._as_made = texts, pause
        self.started: list[Run] = []
        self.goes_on = threading.Event()
        self.memory: tuple[MemoryUse, ...] = ()
        self.block: Callable[[], FakeBlock] | None = lambda: FakeBlock(self._draft())
        self.reset()

    def reset(self) -> None:
        """Is as it was made; the runs that go on end, and all are forgotten."""
        for run in self.started:
            run.cancel()
        self.texts, self.pause = self._as_made
        self.fails = self.damaged = False
        self.draft_s = self.spread = 0.0
        self.costs = Costs(0.2, (1.0,) * 9, block_draft=0.2)  # of the compiled models
        self.stages: tuple[Progress, ...] = ()
        self.started, self.memory = [], ()
        self.goes_on.set()

    @property
    def tokenizer(self) -> "FakeDolly":
        return self

    def piece(self, token: int) -> str:
        return self.texts[token]

    def token_bytes(self, token: int) -> bytes:
        return self.texts[token].encode()

    def detokenizer(self) -> "FakeDolly":
        return self

    push = piece  # of the detokenizer: every token is whole characters

    @property
    def about(self) -> dict[str, object]:
        return {
            "name": "fake",
            "device": "CPU",
            "kv_cache": "paged",
            "kv_block": 32,
            "note": "",
            "exact_widths": self.exact_widths,
            "target": {"weights": "INT8", "bytes": 100_000_000},
            "draft": {"acceptance": [0.8, 0.6]},
        }

    def models_for(self, request: Request) -> "FakeDolly":
        return self

    @property
    def measured(self) -> Measurement:
        return Measurement(self.costs, self.spread)

    def prepare(self, request: Request, mode: Mode = "race") -> Iterator[Progress]:
        yield from self.stages
        self.goes_on.wait()

    def measure(self, request: Request) -> Iterator[Progress | Measurement]:
        yield Progress("Measuring the costs of forward passes")
        self.goes_on.wait()
        if self.fails:
            raise RuntimeError("the <b>engine</b>\nbroke")
        yield self.measured

    def memory_uses(self) -> tuple[MemoryUse, ...]:
        return self.memory

    def unload(self) -> None:
        pass

    def ask(self, instruction: str, context: str = "") -> list[int]:
        """The prompt, of the tokenizer."""
        return [*PROMPT]

    def lanes(self, request: Request, memory: AnswerMemory | None = None) -> Lanes:
        return Lanes(
            target=lambda prompt: self._target(),
            draft=lambda prompt: self._draft(),
            block_draft=self.block,
            memory=AnswerMemory() if memory is None else memory,
            costs=lambda: self.costs,
            end_ids=self.end_ids,
            candidates=5,
            verify=find_verifier(request.verification).verify,
            matcher=stop_matcher(request.stop, lambda: self),
            logprobs=request.logprobs,
        )

    def start(
        self, request: Request, mode: Mode = "race", memory: AnswerMemory | None = None
    ) -> Run:
        def prepare() -> Generator[Progress, None, Prepared]:
            yield from self.prepare(request, mode)
            lanes = self.lanes(request, memory).of(
                mode,
                PROMPT,
                request.sampling,
                request.max_new_tokens,
                request.drafter,
                2 if request.draft_length == "auto" else request.draft_length,  # not by its times
            )
            lanes = {name: self._paused(lane) for name, lane in lanes.items()}
            return Prepared(lanes, {**self.about, "kv_cache": request.kv_cache})

        about = {
            "created": "2026-01-01T00:00:00+00:00",
            "environment": {},
            "pair": self.about,
            "request": request.recorded,
            "prompt_tokens": PROMPT,
        }
        self.started.append(
            Run(
                prepare,
                Recording(lanes_of(mode), lambda: self, self.piece, request.stop, about),
                schedule_of(mode),
            )
        )
        return self.started[-1]

    def _target(self) -> FakeLM:
        target = FakeLM(len(self.texts), seed=0)
        target.hidden = lambda token: [float(token)]
        if self.damaged:
            target.table[:] = np.nan
        return target

    def _draft(self) -> FakeLM:
        return FakeLM(len(self.texts), seed=1, like=self._target(), likeness=0.8)

    def last_trace(self) -> Trace:
        return self.started[-1].trace()

    def _paused(self, events: Iterator[Event]) -> Iterator[Event]:
        """As if the pause were computing: it counts on the lane's clock."""
        for event in events:
            time.sleep(self.pause)
            self.goes_on.wait()
            if isinstance(event, Step):
                draft_s = event.draft_s + self.draft_s * len(event.drafted)
                event = replace(event, draft_s=draft_s, verify_s=event.verify_s + self.pause)
            if self.fails:
                raise RuntimeError("the <b>engine</b>\nbroke")
            yield event
