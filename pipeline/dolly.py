"""A loaded pair that answers requests: instruction in, race and trace out.

This is where the parts meet: prompt, tokenizer, models, decoders, race, trace.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, get_args

from pipeline.compiled import CompiledPair
from pipeline.decoding import Autoregressive, Speculative
from pipeline.draft_length import Auto, DraftLength, Fixed
from pipeline.drafters import Drafter, HybridDrafter, ModelDrafter, PromptLookupDrafter
from pipeline.environment import environment
from pipeline.errors import UserError
from pipeline.events import Event, Finish, FinishReason
from pipeline.kv_cache import KVCacheKind, KVPrecision
from pipeline.openvino_lm import OVModel
from pipeline.pairs import DEFAULT_PAIR, Pair, find_pair
from pipeline.prompt import PREAMBLE
from pipeline.race import race
from pipeline.request import Request
from pipeline.tokenizer import Tokenizer
from pipeline.trace import AUTOREGRESSIVE, SPECULATIVE, LaneRecorder, Token, Trace

_CANDIDATES = 5  # of each model at each place, in a trace

Mode = Literal["race", "autoregressive", "speculative"]


@dataclass(frozen=True, slots=True)
class Update:
    """What just happened in a lane. `tokens` are those that a step emitted, with their text."""

    lane: str
    event: Event
    tokens: tuple[Token, ...]
    time_s: float  # the lane's own clock


class Dolly:
    """A pair of models, compiled and warm. Any number of runs may share it; each owns its caches.

    Args:
        pair: a name, or a folder that holds `target/` and `draft/`.
        lossless: off, both models run as fast as OpenVINO can make them, and greedy speculative
            text may differ from greedy autoregressive text where two tokens are nearly tied.
        threads: of inference; 0 leaves it to OpenVINO.

    Raises:
        UserError: the pair does not exist, is damaged, or its models do not belong together.
    """

    def __init__(
        self,
        pair: str | Path = DEFAULT_PAIR,
        lossless: bool = True,
        threads: int = 0,
    ) -> None:
        self.pair: Pair = find_pair(pair)
        self.tokenizer = Tokenizer(self.pair.target)
        self.tokenizer.require_dolly_tokens()
        self._draft_vocab = _shared_vocabulary(self.tokenizer, Tokenizer(self.pair.draft))
        self._lossless, self._threads = lossless, threads
        self._loading = threading.Lock()
        self._compiled: dict[tuple[KVCacheKind, KVPrecision | None], CompiledPair] = {}
        self.models()

    @property
    def context_length(self) -> int:
        """Tokens that both models can attend to, prompt and answer together."""
        models = self.models()
        return min(models.target.context_length, models.draft.context_length)

    def models(
        self, kv_cache: KVCacheKind = "paged", kv_precision: KVPrecision | None = None
    ) -> CompiledPair:
        """Target and draft for one kind of cache, compiled and warmed when first asked for."""
        with self._loading:
            if (kv_cache, kv_precision) not in self._compiled:
                target, draft = (
                    OVModel(folder, kv_cache, kv_precision, self._lossless, self._threads)
                    for folder in (self.pair.target, self.pair.draft)
                )
                if draft.vocab_size < self.tokenizer.size:
                    remedy = f"choose one with at least the target's {self.tokenizer.size} entries"
                    raise UserError("draft vocabulary", draft.vocab_size, remedy)
                compiled = CompiledPair(target, draft)
                for model in (target, draft):
                    model.share(self.tokenizer.encode(PREAMBLE))
                self._compiled[kv_cache, kv_precision] = compiled
            return self._compiled[kv_cache, kv_precision]

    def describe(
        self, kv_cache: KVCacheKind = "paged", kv_precision: KVPrecision | None = None
    ) -> dict[str, Any]:
        """The trace's `pair`."""
        models = self.models(kv_cache, kv_precision)
        target, draft = (
            {
                "id": name,
                "parameters": model.parameters,
                "weights": model.weights,
                "bytes": model.weight_bytes,
                "kv_precision": model.kv_precision,
            }
            for name, model in (
                (self.pair.target_id, models.target),
                (self.pair.draft_id, models.draft),
            )
        )
        return {"name": self.pair.name, "target": target, "draft": draft}

    def start(self, request: Request, mode: Mode = "race") -> Run:
        """Prepares a run; nothing is computed before it is iterated.

        Raises:
            UserError: the prompt does not fit into the context, or there is no such mode.
        """
        if mode not in get_args(Mode):
            raise UserError("mode", mode, f"choose one of {', '.join(get_args(Mode))}")
        prompt = self.tokenizer.encode(request.prompt)
        room = self.context_length - len(prompt)
        if room < 1:
            remedy = f"shorten it: the context holds {self.context_length}, the answer included"
            raise UserError("prompt tokens", len(prompt), remedy)
        budget = min(request.max_new_tokens, room)
        names = (AUTOREGRESSIVE, SPECULATIVE) if mode == "race" else (mode,)
        lanes = {name: self._lane(name, request, prompt, budget) for name in names}
        recorders = {name: self._recorder() for name in names}
        return Run(lanes, recorders, self._about(request, prompt))

    def _recorder(self) -> LaneRecorder:
        return LaneRecorder(self.tokenizer.detokenizer(), self.tokenizer.piece)

    def _lane(self, name: str, request: Request, prompt: list[int], budget: int) -> Iterator[Event]:
        models, end_ids = self._models(request), self.tokenizer.end_ids
        target = models.target.sequence(self.tokenizer.size, prompt)
        if name == AUTOREGRESSIVE:
            autoregressive = Autoregressive(target, end_ids, _CANDIDATES)
            return autoregressive.generate(prompt, request.sampling, budget)
        lookup = PromptLookupDrafter(end_ids)
        drafter: Drafter = lookup
        if request.drafter != "lookup":
            draft = models.draft.sequence(self._draft_vocab, prompt)
            drafter = model = ModelDrafter(draft, target.vocab_size, end_ids)
            if request.drafter == "hybrid":
                drafter = HybridDrafter(lookup, model, models.costs)
        choose: Callable[[], DraftLength]
        if request.draft_length == "auto":
            choose = partial(Auto, models.experience(request.drafter))
        else:
            choose = partial(Fixed, request.draft_length)
        speculative = Speculative(target, drafter, choose, end_ids, _CANDIDATES)
        return speculative.generate(prompt, request.sampling, budget)

    def _models(self, request: Request) -> CompiledPair:
        return self.models(request.kv_cache, request.kv_precision)

    def _about(self, request: Request, prompt: list[int]) -> dict[str, Any]:
        return {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "environment": _environment(),
            "pair": self.describe(request.kv_cache, request.kv_precision),
            "request": asdict(request),
            "prompt_tokens": tuple(prompt),
        }


class Run:
    """One request being answered. Iterate it once; look at `trace()` whenever you like."""

    def __init__(
        self,
        lanes: dict[str, Iterator[Event]],
        recorders: dict[str, LaneRecorder],
        about: dict[str, Any],
    ) -> None:
        self._lanes, self._recorders, self._about = lanes, recorders, about
        self._cancelled = threading.Event()

    def __iter__(self) -> Iterator[Update]:
        """Runs the race. A lane left without an end, because the iteration was cancelled or
        closed or because it failed, gets one in the trace.
        """
        racing = race(self._lanes)
        reason = FinishReason.CANCELLED
        try:
            for name, event in racing:
                recorder = self._recorders[name]
                tokens = recorder.record(event)
                yield Update(name, event, tokens, recorder.time_s)
                if self._cancelled.is_set():
                    break
        except Exception:
            reason = FinishReason.ERROR
            raise
        finally:
            racing.close()
            for recorder in self._recorders.values():
                if not recorder.finished:
                    recorder.record(Finish(reason))

    def cancel(self) -> None:
        """Ends the run after the event under way; from any thread."""
        self._cancelled.set()

    def trace(self) -> Trace:
        """The record as it stands; from any thread."""
        lanes = {name: recorder.lane() for name, recorder in self._recorders.items()}
        pieces: dict[int, str] = {}
        for recorder in self._recorders.values():
            pieces |= recorder.pieces
        return Trace(**self._about, lanes=lanes, pieces=pieces)


def _shared_vocabulary(target: Tokenizer, draft: Tokenizer) -> int:
    """How many of the target's first ids the draft may propose: all that both know.

    The draft may lack tokens that were added to the target (Pythia for Dolly), nothing else.
    """
    if draft.merges != target.merges or not draft.vocab.items() <= target.vocab.items():
        remedy = "choose a draft whose tokenizer is the target's"
        raise UserError("draft tokenizer", "another than the target's", remedy)
    return draft.size


@cache
def _environment() -> dict[str, Any]:
    return environment()
