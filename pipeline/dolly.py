"""A loaded pair that answers requests: from an instruction to a run and its trace.

It joins the packages: prompt, tokenizer, models, decoders, race and trace.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.drafters import find_drafter
from pipeline.decoding.economics import Measurement
from pipeline.decoding.events import SPECULATIVE
from pipeline.decoding.lanes import Lanes
from pipeline.decoding.race import Mode, check_mode, lanes_of, schedule_of
from pipeline.decoding.verification import find_verifier
from pipeline.environment import MemoryUse, environment, memory_bytes, process_memory
from pipeline.errors import UserError
from pipeline.models.choice import Choice
from pipeline.models.pairs import DEFAULT_PAIR, Pair, find_pair
from pipeline.models.store import Store
from pipeline.progress import Progress, in_bytes
from pipeline.request import Request
from pipeline.run import Prepared, Run
from pipeline.runtime.block import OVBlockModel
from pipeline.runtime.kv_cache.memory import KVMemory
from pipeline.runtime.kv_cache.policy import Properties, UnsupportedPolicyError
from pipeline.runtime.kv_cache.precision import KVPrecision
from pipeline.runtime.kv_cache.registry import DEFAULT_POLICY, FALLBACK_POLICY, find_policy
from pipeline.runtime.model import OVModel, RuntimeOptions, check_device
from pipeline.runtime.pair import CompiledPair
from pipeline.runtime.weight_files import weight_bytes
from pipeline.text.stop import stop_matcher
from pipeline.text.tokenizer import Tokenizer, shared_vocabulary
from pipeline.trace.recording import Pools, Recording

_TEXT = "Why is the sky blue?"  # on which forward passes are compared
_CANDIDATES = 5  # most likely tokens of each model that a trace records per position


_Compilation = tuple[str, KVPrecision | None]  # a cache policy, and the precision of its caches


class Dolly:
    """A `LocalEngine`: a pair of models, or one alone, compiled and warm. Any number of runs may
    share it; each owns its caches.

    Args:
        pair: one of the registry's or of the user's; or its name, or a folder that holds
            `target/`, and perhaps `draft/`. Its models must be in the store.
        lossless: off, both models run as fast as OpenVINO can make them, and greedy speculative
            text may differ from greedy autoregressive text where two tokens are nearly tied.
        threads: the threads of inference; 0 leaves it to OpenVINO.
        store: where the models are; None takes the user's.
        device: one that OpenVINO lists.
        properties: further ones for the plugin; they win over those that the others imply.
        kv_memory: limit of all its KV caches together, in bytes; None without a limit.

    Attributes:
        context_length: tokens that all models can attend to, prompt and answer together.
        about: the trace's `pair`, of a run with the default caches.

    Raises:
        UserError: the pair does not exist, is damaged or too large, or its models do not belong
            together; or there is no such device; or the limit of the caches is too small.
    """

    def __init__(
        self,
        pair: Pair | str | Path = DEFAULT_PAIR,
        lossless: bool = True,
        threads: int = 0,
        store: Store | None = None,
        device: str = "CPU",
        properties: Properties | None = None,
        kv_memory: int | None = None,
    ) -> None:
        self.pair = pair if isinstance(pair, Pair) else find_pair(pair)
        check_device(device)
        store = store or Store()
        self._folders = [store.folder(model) for model in self.pair.models]
        block = self.pair.block
        self._hidden_layers = OVBlockModel.hidden_layers(block) if block else ()
        folders = [*self._folders, *([block] if block else [])]
        self._needed = sum(weight_bytes(folder) for folder in folders)
        if device == "CPU" and self._needed > memory_bytes():
            remedy = f"needs more than this machine's {in_bytes(memory_bytes())}; choose int4"
            raise UserError("pair", self.pair.name, f"{remedy}, or a smaller pair")
        self.tokenizer = Tokenizer(self._folders[0])
        shared = [shared_vocabulary(self.tokenizer, Tokenizer(each)) for each in self._folders[1:]]
        self._draft_vocab = min(shared, default=self.tokenizer.size)
        self._kv_memory = KVMemory(kv_memory)
        self._options = RuntimeOptions(
            lossless=lossless,
            threads=threads,
            device=device,
            properties=properties or {},
            kv_memory=self._kv_memory,
        )
        self._loading = threading.Lock()
        self._compiled: dict[_Compilation, CompiledPair] = {}
        models = self.models()  # described now: they may be unloaded later
        self.context_length = min(model.context_length for model in models.models)
        self.about = self.describe(models)

    @classmethod
    def of(cls, choice: Choice) -> Dolly:
        """What the flags of a command name; its models must be in the store.

        Raises:
            UserError: as the constructor.
        """
        return cls(
            choice.pair,
            threads=choice.threads,
            store=choice.store,
            device=choice.device,
            kv_memory=choice.kv_memory,
        )

    def models(
        self,
        kv_cache: str = DEFAULT_POLICY,
        kv_precision: KVPrecision | None = None,
    ) -> CompiledPair:
        """The models for one cache policy, compiled and warmed up on first use.

        If a model or the device does not support the policy, both use the fallback, with a note.

        Raises:
            UserError: the memory of the caches is limited, and that of such caches cannot be.
        """
        wanted = kv_cache, kv_precision
        with self._loading:
            if wanted not in self._compiled:
                self._check_limited(kv_cache)
                while self._compiled and self._crowded():
                    del self._compiled[next(iter(self._compiled))]
                try:
                    compiled = self._compile(*wanted)
                except UnsupportedPolicyError as reason:
                    self._check_limited(FALLBACK_POLICY)
                    note = f"no {kv_cache} cache here ({reason}): the {FALLBACK_POLICY} one is used"
                    compiled = self._compile(FALLBACK_POLICY, kv_precision, note)
                self._compiled[wanted] = compiled
            return self._compiled[wanted]

    def models_for(self, request: Request) -> CompiledPair:
        """The `models` for a request."""
        return self.models(request.kv_cache, request.kv_precision)

    def prepare(
        self, request: Request, mode: Mode = "race"
    ) -> Generator[Progress, None, CompiledPair]:
        """As `Engine.prepare`, for the lanes of a mode; returns the models."""
        if (request.kv_cache, request.kv_precision) not in self._compiled:
            yield Progress(f"Preparing the {request.kv_cache} cache")
        models = self.models_for(request)
        by_costs = request.draft_length == "auto" or find_drafter(request.drafter).compares
        if by_costs and SPECULATIVE in lanes_of(mode) and not models.costs_known:
            yield from models.measure()
        return models

    def measure(self, request: Request) -> Generator[Progress | Measurement, None, None]:
        """As `LocalEngine.measure`, also if they are known."""
        models = yield from self.prepare(request, "autoregressive")  # without costs
        yield from models.measure()
        if models.measured:
            yield models.measured

    @property
    def measured(self) -> Measurement | None:
        """As of a `LocalEngine`."""
        compiled = self._compiled.get((DEFAULT_POLICY, None))
        return compiled.measured if compiled else None

    def _compile(
        self, kv_cache: str, kv_precision: KVPrecision | None, note: str = ""
    ) -> CompiledPair:
        options = replace(self._options, kv_cache=kv_cache, kv_precision=kv_precision)
        target = OVModel(self._folders[0], options, self._hidden_layers)
        draft = OVModel(self._folders[1], options) if self.pair.draft else None
        block = OVBlockModel(self.pair.block, options) if self.pair.block else None
        self._check_vocabularies(target, filter(None, (draft, block)))
        compiled = CompiledPair(target, draft, block, note, self.tokenizer.ask(_TEXT))
        for model in compiled.models:
            model.share_prefix(self.tokenizer.shared_prefix)
        return compiled

    def _check_vocabularies(self, target: OVModel, drafts: Iterable[OVModel]) -> None:
        """Raises UserError unless the drafts can read and propose for the target."""
        size = self.tokenizer.size
        if target.vocabulary:
            remedy = "has some of its tokenizer's tokens only; it can only be a draft"
            raise UserError("target", self.pair.target.name, remedy)
        for draft in drafts:
            if draft.vocabulary is None:
                if draft.vocab_size < size:
                    remedy = f"choose one with at least the target's {size} entries"
                    raise UserError("draft vocabulary", draft.vocab_size, remedy)
            elif (last := int(draft.vocabulary.token_ids[-1])) >= size:
                remedy = f"is not among the target's {size} tokens; choose the draft made for it"
                raise UserError("draft vocabulary", f"token id {last}", remedy)

    def _crowded(self) -> bool:
        """Whether models for another policy might not fit into memory, or their caches into its
        limit.
        """
        limited = self._kv_memory.limit is not None
        return limited or (len(self._compiled) + 1) * self._needed > memory_bytes() // 3

    def _check_limited(self, kv_cache: str) -> None:
        """Raises UserError if the memory of such caches should be limited and cannot be."""
        if self._kv_memory.limit is not None and not find_policy(kv_cache).limitable:
            remedy = "its memory has no limit; choose another, or leave out --kv-memory"
            raise UserError("KV cache", kv_cache, remedy)

    def describe(self, models: CompiledPair) -> dict[str, Any]:
        """The trace's `pair`."""
        draft, block, measured = models.draft, models.block_draft, models.measured
        return {
            "name": self.pair.name,
            "device": self._options.device,
            "kv_cache": models.policy.name,
            "kv_block": models.policy.block_size,
            "kv_memory": self._kv_memory.limit,
            "exact": models.policy.exact and models.exact_widths,
            "forgets": not models.policy.exact,
            "note": models.note,
            "exact_widths": models.exact_widths,
            "pass_costs": measured and [round(c, 4) for c in measured.costs.in_steps.verify],
            "target": _about(self.pair.target.name, models.target),
            "draft": draft and _about(self.pair.required_draft.name, draft),
            "block": block and _about(f"{self.pair.name}/block", block),
        }

    def start(
        self, request: Request, mode: Mode = "race", memory: AnswerMemory | None = None
    ) -> Run:
        """As `Engine.start`; so it may be started while another run goes on."""
        check_mode(mode)
        if SPECULATIVE in lanes_of(mode):
            self.pair.check_drafter(request.drafter)
        self._check_limited(request.kv_cache)
        prompt = self.tokenizer.ask(request.instruction, request.context)
        self._budget(request, prompt, find_policy(request.kv_cache).unbounded)
        about = {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "environment": _environment(),
            "pair": self.about,
            "request": request.recorded,
            "prompt_tokens": tuple(prompt),
        }
        text = self.tokenizer
        recording = Recording(lanes_of(mode), text.detokenizer, text.piece, request.stop, about)
        prepare = partial(self._prepare, request, mode, prompt, memory)
        return Run(prepare, recording, schedule_of(mode))

    def _prepare(
        self, request: Request, mode: Mode, prompt: list[int], memory: AnswerMemory | None
    ) -> Generator[Progress, None, Prepared]:
        """Prepares a run; raises UserError as `prepare`, or if the prompt does not fit into the
        context of the fallback.
        """
        models = yield from self.prepare(request, mode)
        budget = self._budget(request, prompt, models.policy.unbounded)
        sampling, drafter, draft_length = request.sampling, request.drafter, request.draft_length
        lanes = self.lanes(request, memory).of(
            mode, prompt, sampling, budget, drafter, draft_length
        )
        draft: OVModel | None = models.draft
        if models.block_draft and find_drafter(drafter).block_draft:
            draft = models.block_draft

        def pools() -> Pools:
            of_draft = draft.pool if draft else None
            return {"target_pool": models.target.pool, "draft_pool": of_draft}

        return Prepared(lanes, self.describe(models), pools)

    def _budget(self, request: Request, prompt: list[int], unbounded: bool) -> int:
        return request.budget(len(prompt), None if unbounded else self.context_length)

    def lanes(self, request: Request, memory: AnswerMemory | None = None) -> Lanes:
        """Builds the lanes of a request with its caches; compiles the models on first use."""
        models = self.models_for(request)
        draft, block = models.draft, models.block_draft
        return Lanes(
            target=partial(models.target.sequence, self.tokenizer.size),
            draft=partial(draft.sequence, self._draft_vocab) if draft else None,
            block_draft=partial(block.block_draft, self._draft_vocab) if block else None,
            memory=AnswerMemory() if memory is None else memory,
            costs=lambda: models.costs,
            draft_acceptance=draft.acceptance if draft else (),
            block_acceptance=block.acceptance if block else (),
            stats=models.stats.setdefault(request.verification, {}),
            end_ids=self.tokenizer.end_ids,
            candidates=_CANDIDATES,
            verify=find_verifier(request.verification).verify,
            matcher=stop_matcher(request.stop, self.tokenizer.detokenizer),
            logprobs=request.logprobs,
        )

    def token_bytes(self, token: int) -> bytes:
        return self.tokenizer.token_bytes(token)

    def memory_uses(self) -> tuple[MemoryUse, ...]:
        return process_memory() + self._kv_memory.uses()

    def unload(self) -> None:
        """As of an `Engine`."""
        with self._loading:
            self._compiled.clear()


def _about(name: str, model: OVModel) -> dict[str, Any]:
    """A model in the trace's `pair`."""
    return {
        "id": name,
        "parameters": model.parameters,
        "weights": model.weights,
        "bytes": model.weight_bytes,
        "pass_bytes": model.pass_bytes,
        "acceptance": [*model.acceptance],
        "kv_precision": model.kv_precision,
    }


@cache
def _environment() -> dict[str, Any]:
    return environment()
