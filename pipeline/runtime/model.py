"""`OVModel`: a causal language model's weights, compiled once and shared by its sequences.

Depends on OpenVINO and token ids; not on text or on sampling.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import numpy as np
import openvino as ov

from pipeline.decoding.lm import Hidden
from pipeline.environment import PoolUse
from pipeline.errors import UserError
from pipeline.runtime.compiled import Compiled
from pipeline.runtime.graph import keep_logits, output_hidden
from pipeline.runtime.ir import (
    bytes_per_pass,
    count_weights,
    last_line,
    read_config,
    read_model,
)
from pipeline.runtime.kv_cache.memory import KVMemory, Pooled
from pipeline.runtime.kv_cache.policy import (
    MAX_DECODE_TOKENS,
    CachePolicy,
    CacheSetup,
    PrefixSharing,
    Properties,
)
from pipeline.runtime.kv_cache.precision import KVPrecision, effective_precision
from pipeline.runtime.kv_cache.registry import DEFAULT_POLICY, find_policy
from pipeline.runtime.projections import merge_projections
from pipeline.runtime.sequence import FURTHER_INPUTS, OVCausalLM
from pipeline.runtime.vocabulary import Vocabulary
from pipeline.runtime.weight_files import weight_bytes

_DECODE_SIZES = range(1, MAX_DECODE_TOKENS + 1)
_COMPARED = 12  # tokens whose logits are compared
_ROUNDS = 5  # in which passes of every size are measured


@dataclass(frozen=True, slots=True)
class PassTimes:
    """Measured times of a model's forward passes.

    Attributes:
        seconds: medians, of a pass of each size with all its logits, after one of the same size.
        switch: seconds that a pass takes longer after one of another size; a median.
        spread: the distance between the quartiles of a size's times, as a share of their median;
            the median of all sizes, which a single slow pass does not change.
    """

    seconds: tuple[float, ...]
    switch: float
    spread: float


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """How a model is compiled and run, the same for both models of a pair.

    Attributes:
        kv_cache: the name of a cache policy.
        kv_precision: the precision of keys and values; None takes the policy's.
        lossless: whether logits must not depend on how many tokens are in a forward pass. If not,
            the plugin uses its fastest settings.
        threads: the threads of inference; 0 leaves it to OpenVINO.
        device: one that OpenVINO lists.
        properties: further ones for the plugin; they win over those that the others imply.
        kv_memory: the memory that the caches share with those of other models; None for one of
            their own, without a limit.
    """

    kv_cache: str = DEFAULT_POLICY
    kv_precision: KVPrecision | None = None
    lossless: bool = True
    threads: int = 0
    device: str = "CPU"
    properties: Properties = field(default_factory=dict)
    kv_memory: KVMemory | None = None


DEFAULT_OPTIONS = RuntimeOptions()


class OVModel:
    """A model compiled for one cache policy. It holds no sequence.

    Losslessness is a property of the kernels. The CPU plugin quantises activations on the fly,
    and a forward pass of one token takes another kernel than one of several, so their logits
    differ by more than the gap between two good tokens. What makes them agree depends on the
    cache:

    - paged: an f16 or f32 cache, tokens that attend one by one, and a single token padded to two
      (see `PagedKVCache`). Passes of 1 to 9 tokens then give bit-identical logits.
    - the others cannot pad: f32 states, activations not quantised.

    Args:
        folder: `openvino_model.xml`, `.bin` and `config.json`, as optimum-intel writes them.
        options: how it is compiled.
        hidden_layers: decoder layers, from 0, after which the residual stream is returned beside
            the logits.

    Attributes:
        compiled: what its sequences share.
        policy: the policy of its sequences' caches.
        context_length: the tokens that it can attend to.
        parameters: the number of weights in matrices.
        weights: the type that most of them have ("INT8").
        weight_bytes: the bytes of their file.
        pass_bytes: the bytes of those that a forward pass reads.
        acceptance: of a draft, by position, as measured when it was made; see `IRConfig`.
        kv_precision: the effective precision of its caches.

    Raises:
        UserError: a file is missing, truncated, or not a causal language model; or there is no
            such device, policy or layer, the caches cannot have this precision, or there is
            not enough memory.
        UnsupportedPolicyError: the model, or the device, cannot have this policy.
    """

    def __init__(
        self,
        folder: Path,
        options: RuntimeOptions = DEFAULT_OPTIONS,
        hidden_layers: Sequence[int] = (),
    ) -> None:
        self.policy = policy = find_policy(options.kv_cache)
        check_device(options.device)
        config = read_config(folder)
        self.context_length, self.weight_bytes = config.context_length, weight_bytes(folder)
        self.acceptance = config.acceptance

        model = read_model(folder)
        self.parameters, self.weights = count_weights(model)
        self.pass_bytes = bytes_per_pass(model)
        policy.prepare(model, config.family, options.device)
        keep_logits(model, policy.token_axis)
        hidden_width = output_hidden(model, hidden_layers) if hidden_layers else 0
        merge_projections(model, self.weight_bytes)
        rows = {
            port.any_name: (port.get_element_type().to_dtype(), _tail(port))
            for port in model.inputs
            if port.any_name in FURTHER_INPUTS
        }
        compiled = _compile(model, policy, options, folder)
        self.kv_precision: str = effective_precision(compiled).get_type_name()
        if self.kv_precision not in policy.precisions:
            remedy = f"choose {', '.join(policy.precisions)} for {policy.name} caches, or others"
            raise UserError("KV precision", self.kv_precision, remedy)
        self.compiled = Compiled(
            model=compiled,
            vocab_size=config.vocab_size,
            vocabulary=config.vocabulary,
            prefill_chunk=policy.prefill_chunk or config.context_length,
            token_axis=policy.token_axis,
            hidden_width=hidden_width,
            rows=rows,
            lock=Lock(),
        )
        kv_memory, lock = options.kv_memory or KVMemory(), self.compiled.lock
        setup = CacheSetup(compiled, lock, options.lossless, kv_memory, config.rotary)
        self._new_cache = policy.caches(setup)
        self._prefix: tuple[tuple[int, ...], PrefixSharing, Hidden | None] | None = None

    @property
    def vocab_size(self) -> int:
        """The tokens that it has logits for."""
        return self.compiled.vocab_size

    @property
    def vocabulary(self) -> Vocabulary | None:
        """Which tokens these are; None if they are the first of its tokenizer's."""
        return self.compiled.vocabulary

    def share_prefix(self, tokens: Sequence[int]) -> None:
        """Computes the shared prefix of prompts once, so that later sequences start from it. Does
        nothing if the cache cannot share.
        """
        sequence, kept = self.sequence(), self.sequence().cache
        if isinstance(kept, PrefixSharing):
            hidden = sequence.forward(tokens, logits_to_keep=0).hidden
            kept.start_from(sequence.cache)  # it never runs, so it binds no tensors of the pool
            self._prefix = tuple(tokens), kept, hidden

    @property
    def pool(self) -> PoolUse | None:
        """The blocks of its sequences' caches; None where they have no blocks."""
        return self._new_cache.pool.use if isinstance(self._new_cache, Pooled) else None

    def sequence(self, vocab_size: int | None = None, prompt: Sequence[int] = ()) -> OVCausalLM:
        """A new sequence with a cache of its own; the weights are shared.

        Args:
            vocab_size: cut the logits to those of the first so many token ids, if the model has
                more: rows that padding added, or tokens it was never taught.
            prompt: the prompt. If it starts with the shared prefix and is longer, the cache
                already holds the prefix; otherwise the cache is empty.
        """
        request = self.compiled.model.create_infer_request()
        cache, hidden = self._new_cache(request), None
        if self._prefix and isinstance(cache, PrefixSharing):
            tokens, prefix, states = self._prefix
            if len(tokens) < len(prompt) and tokens == tuple(prompt[: len(tokens)]):
                cache.start_from(prefix)
                hidden = states
        logits = self.vocab_size
        if vocab_size:
            logits = self.vocabulary.cut(vocab_size) if self.vocabulary else vocab_size
        return OVCausalLM(self.compiled, request, cache, min(logits, self.vocab_size), hidden)

    def warm_up(self) -> None:
        """Runs every size of forward pass in use, since the first of each compiles kernels."""
        sequence, multiple = self.sequence(), self.policy.prefill_multiple
        padded = range(multiple, (self.policy.prefill_chunk or 0) + 1, multiple)
        for count in (*_DECODE_SIZES, *padded):
            sequence.time_forward(count)

    def exact_widths(self, text: Sequence[int]) -> bool:
        """Whether the logits of the last tokens of `text` are the same to the bit in forward passes
        of 1, 2, … 9 of them, once warm.
        """
        sequence, begin = self.sequence(), max(0, len(text) - _COMPARED)
        sequence.forward(text[:begin], logits_to_keep=0)
        alone = [sequence.forward([token], logits_to_keep=1).logits[0] for token in text[begin:]]
        counts = range(2, min(MAX_DECODE_TOKENS, len(alone)) + 1)
        for count in sorted(counts, key=lambda count: count % 2):
            at = 0 if count % 2 else len(alone) - count  # the even ones at the end of the text
            sequence.rollback(begin + at)
            passed = text[begin + at : begin + at + count]
            together = sequence.forward(passed, logits_to_keep=count).logits
            if not np.array_equal(together, alone[at : at + count]):
                return False
        return True

    def forward_times(self, sizes: Sequence[int] = _DECODE_SIZES) -> PassTimes:
        """Measures forward passes of so many tokens, once warm: all sizes in each round, upwards
        and downwards in turn, so that what disturbs a round is in the times of every size.
        """
        sequence = self.sequence()
        times: dict[int, list[float]] = {count: [] for count in sizes}
        switches = list[float]()
        for turn in range(_ROUNDS):
            for count in sizes[:: -1 if turn % 2 else 1]:
                first, second = (sequence.time_forward(count) for _ in range(2))
                times[count].append(second)
                switches.append(first - second)
        medians = tuple(statistics.median(each) for each in times.values())
        spreads = [*map(_spread, times.values())]
        return PassTimes(medians, max(0.0, statistics.median(switches)), statistics.median(spreads))


def _compile(
    model: ov.Model, policy: CachePolicy, options: RuntimeOptions, folder: Path
) -> ov.CompiledModel:
    properties: dict[str, str | int | bool] = {
        "PERFORMANCE_HINT": "LATENCY",
        "KV_CACHE_PRECISION": options.kv_precision or policy.precision,
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": options.threads,
    }
    if options.lossless:
        properties |= policy.lossless_properties
    core, device = ov.Core(), options.device
    supported = core.get_property(device, "SUPPORTED_PROPERTIES")
    properties = {name: value for name, value in properties.items() if name in supported}
    try:
        return core.compile_model(model, device, properties | dict(options.properties))
    except RuntimeError as error:
        remedy = f"cannot be compiled for {device} ({last_line(error)})"
        raise UserError("model", str(folder), remedy) from None


def _spread(times: Sequence[float]) -> float:
    low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
    return (high - low) / middle


def _tail(port: ov.Output) -> tuple[int, ...]:
    """The shape of a token's row: all axes of an input but batch and tokens."""
    return tuple(axis.get_length() for axis in [*port.get_partial_shape()][2:])


def check_device(device: str) -> None:
    """Raises UserError unless OpenVINO lists the device. "AUTO" and similar, which select among
    devices, do not support the properties that losslessness needs.
    """
    devices = ov.Core().available_devices
    if device.partition(".")[0] not in (name.partition(".")[0] for name in devices):
        raise UserError("device", device, f"choose {', '.join(devices)}")
