"""`OVModel`, compiled weights that many may share, and `OVCausalLM`, one sequence of one model.

Knows OpenVINO and token ids; not what they mean, nor how they are chosen.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from threading import RLock
from time import perf_counter

import numpy as np
import openvino as ov
import openvino.opset13 as ops
from numpy.typing import NDArray

from pipeline.decoding.lm import Output
from pipeline.errors import UserError
from pipeline.runtime.kv_cache import Inputs, KVCache, KVCacheKind, KVPrecision, kv_type, paged
from pipeline.runtime.kv_cache.paged import (
    MOST_DECODED,
    PAD_TO,
    BlockPool,
    CannotPageError,
    PagedKVCache,
)
from pipeline.runtime.kv_cache.stateful import MaskedKVCache, StatefulKVCache
from pipeline.runtime.kv_cache.uncached import Uncached

_UNPAGED: dict[KVCacheKind, Callable[[ov.InferRequest], KVCache]] = {
    "stateful": StatefulKVCache,
    "stateful-masked": MaskedKVCache,
    "uncached": Uncached,
}
# Families whose paged logits are those of the checkpoint (tests/test_families.py). The
# transformation takes others too, and MPT's come out wrong without a word.
PAGED = frozenset(
    ("gpt_neox", "gpt2", "llama", "mistral", "qwen2", "qwen3", "phi", "bloom", "stablelm")
)
_ROWS = "logit_rows"
_WEIGHT_NAMES = {"u8": "INT8", "i8": "INT8", "u4": "INT4", "i4": "INT4"}
# A paged prompt is read in pieces of at most this many tokens, so that every width can be warmed:
# the first run of each compiles kernels, and no user should wait for that.
_PIECE = 128
_DECODED = range(1, MOST_DECODED + 1)  # tokens of a run while decoding
_CONTEXTS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")
_ENDLESS = 2048  # tokens, where positions are relative and a model names no limit
_XML, _BIN, _CONFIG = "openvino_model.xml", "openvino_model.bin", "config.json"


class OVModel:
    """A causal language model's IR, compiled for one kind of cache. Holds no sequence.

    Losslessness is a property of the kernels. The CPU plugin quantises activations on the fly,
    and a run of one token takes another kernel than a run of several, so their logits differ by
    more than the gap between two good tokens. What makes them agree depends on the cache:

    - paged: an f16 or f32 cache, tokens that attend one by one, and company for a lone token
      (see `PagedKVCache`). Runs of 1 to 9 tokens then give bit-identical logits.
    - the others have no place for company: f32 states, activations not quantised.

    Args:
        folder: `openvino_model.xml`, `.bin` and `config.json`, as optimum-intel writes them.
        kv_cache: how its sequences keep their keys and values.
        kv_precision: of the cache; None takes f16 for paged and f32 for the others.
        lossless: logits do not depend on how many tokens are run at once. Off, everything is as
            fast as the plugin can make it.
        threads: of inference; 0 leaves it to OpenVINO.
        device: one that OpenVINO lists. Paged caches are the CPU plugin's.
        properties: further ones for the plugin; they win over what the others imply.

    Raises:
        UserError: a file is missing, truncated, or not a causal language model; or there is no
            such device, or not enough memory.
        CannotPageError: the model, or the device, has no paged cache.
    """

    def __init__(
        self,
        folder: Path,
        kv_cache: KVCacheKind = "paged",
        kv_precision: KVPrecision | None = None,
        lossless: bool = True,
        threads: int = 0,
        device: str = "CPU",
        properties: Mapping[str, str | int | bool] | None = None,
    ) -> None:
        self._kv_cache, self._lossless = kv_cache, lossless
        core = ov.Core()
        check_device(device)
        self.family, self.vocab_size, self.context_length = _read_config(folder)
        self.weight_bytes = weight_bytes(folder)
        self.piece = _PIECE if kv_cache == "paged" else self.context_length
        self.runs = 0
        self.lock = RLock()  # one run at a time: they would only compete for the same cores

        model = _read_model(folder)
        self.parameters, self.weights = _measure_weights(model)
        if kv_cache == "paged":
            if not device.startswith("CPU"):
                raise CannotPageError(f"{device} keeps its own cache")
            if self.family not in PAGED:
                raise CannotPageError(f"not verified for the family {self.family}")
            paged.prepare(model)
        _select_rows(model, token_axis=0 if kv_cache == "paged" else 1)
        options: dict[str, str | int | bool] = {
            "PERFORMANCE_HINT": "LATENCY",
            "KV_CACHE_PRECISION": kv_precision or ("f16" if kv_cache == "paged" else "f32"),
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": threads,
        }
        if lossless and kv_cache != "paged":
            options["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = 0
        supported = core.get_property(device, "SUPPORTED_PROPERTIES")
        options = {name: value for name, value in options.items() if name in supported}
        try:
            self._compiled = core.compile_model(model, device, options | dict(properties or {}))
        except RuntimeError as error:
            remedy = f"cannot be compiled for {device} ({_last_line(error)})"
            raise UserError("model", str(folder), remedy) from None
        self.inputs = frozenset(port.any_name for port in self._compiled.inputs)
        self._pool = BlockPool(self._compiled, self.lock) if kv_cache == "paged" else None
        self._shared: tuple[tuple[int, ...], PagedKVCache | None] = (), None
        self.kv_precision: str = kv_type(self._compiled).get_type_name()

    @property
    def pool_bytes(self) -> int:
        """Bytes allocated for the caches of all sequences; 0 where each has its own."""
        return self._pool.nbytes if self._pool else 0

    def share(self, tokens: Sequence[int]) -> None:
        """Reads what many prompts begin with, once: their sequences start from there (paged)."""
        if self._pool is None:
            return
        request = self._compiled.create_infer_request()
        cache = PagedKVCache(request, self._pool, self._lossless)
        OVCausalLM(self, request, cache, self.vocab_size).forward(tokens, logits_to_keep=0)
        self._shared = tuple(tokens), cache

    def sequence(self, vocab_size: int | None = None, prompt: Sequence[int] = ()) -> OVCausalLM:
        """A new sequence with a cache of its own; the weights are shared.

        Args:
            vocab_size: cut the logits to this many, if the model has more: rows that padding
                added, or tokens it was never taught.
            prompt: what will be read. If it begins with what is shared, and goes on, the cache
                holds that already; else it is empty.
        """
        request = self._compiled.create_infer_request()
        vocab_size = min(vocab_size or self.vocab_size, self.vocab_size)
        if self._pool is None:
            return OVCausalLM(self, request, _UNPAGED[self._kv_cache](request), vocab_size)
        cache = PagedKVCache(request, self._pool, self._lossless)
        tokens, shared = self._shared
        if shared and len(tokens) < len(prompt) and tokens == tuple(prompt[: len(tokens)]):
            cache.continue_from(shared)
        return OVCausalLM(self, request, cache, vocab_size)

    def operations(self) -> dict[str, float]:
        """Seconds by kind of operation, means of all `runs`; needs the property PERF_COUNT."""
        seconds: defaultdict[str, float] = defaultdict(float)
        for node in self._compiled.create_infer_request().profiling_info:
            seconds[node.node_type] += node.real_time.total_seconds()
        return dict(seconds)

    def warm(self) -> None:
        """Runs every token count that is used: each compiles kernels the first time."""
        sequence = self.sequence()
        for count in (*_DECODED, *range(PAD_TO, _PIECE + 1, PAD_TO)):
            sequence.timed(count)

    def run_times(self) -> tuple[tuple[float, ...], float]:
        """What runs take, once warm.

        Returns:
            The seconds of a run of 1, 2, … 9 tokens with all their logits, each after one of the
            same width; and those that a run takes longer after one of another width. Medians.
        """
        sequence = self.sequence()
        turns = [
            [(sequence.timed(count), sequence.timed(count)) for count in _DECODED] for _ in range(5)
        ]
        runs = [[steady for _, steady in turn] for turn in turns]
        switches = [first - steady for turn in turns for first, steady in turn]
        medians = tuple(statistics.median(times) for times in zip(*runs, strict=True))
        return medians, max(0.0, statistics.median(switches))


class OVCausalLM:
    """One sequence of a model. Made by `OVModel.sequence`.

    The small inputs are the cache's own arrays, which it writes in place.
    """

    def __init__(
        self, model: OVModel, request: ov.InferRequest, cache: KVCache, vocab_size: int
    ) -> None:
        self.vocab_size = vocab_size
        self._model = model
        self._request, self._cache = request, cache
        self._bound: Inputs = {}
        self._logits = request.get_output_tensor()

    @property
    def kv_bytes(self) -> int:
        return self._cache.nbytes

    def __len__(self) -> int:
        return len(self._cache)

    def forward(self, tokens: Sequence[int], logits_to_keep: int, pad_to: int = 0) -> Output:
        """Appends `tokens`; returns the logits after each of the last `logits_to_keep`.

        A decoding run is padded to `pad_to` tokens, where the cache can: one of another width than
        the last makes the plugin prepare every node anew.

        Only these rows reach the vocabulary's matrix product. No tokens, no run.

        Returns:
            logits float32[logits_to_keep, vocab], the caller's to keep.
        """
        while len(tokens) > max(self._model.piece, logits_to_keep):
            self._run(tokens[: self._model.piece], 0, 0)
            tokens = tokens[self._model.piece :]
        return Output(self._run(tokens, logits_to_keep, pad_to))

    def rollback(self, length: int) -> None:
        self._cache.rollback(length)

    def timed(self, count: int) -> float:
        """Seconds of a run of so many tokens, which is forgotten again. What they are is nothing
        to its time.
        """
        length = len(self)
        start = perf_counter()
        self.forward([0] * count, logits_to_keep=min(count, MOST_DECODED))
        took = perf_counter() - start
        self.rollback(length)
        return took

    def _run(self, tokens: Sequence[int], logits_to_keep: int, pad_to: int) -> NDArray[np.float32]:
        if not tokens:
            return np.empty((0, self.vocab_size), np.float32)
        with self._model.lock:
            inputs = self._cache.append(tokens, pad_to)
            end = inputs["input_ids"].size
            # As many in every run of a width.
            wanted = min(max(logits_to_keep, pad_to), end) if logits_to_keep else 0
            self._bind(inputs)
            self._bind({_ROWS: _last_rows(end, wanted)})
            self._request.start_async()
            self._request.wait()
            self._model.runs += 1
        if not logits_to_keep:
            return np.empty((0, self.vocab_size), np.float32)
        logits: NDArray[np.float32] = self._logits.data.reshape(wanted, -1)
        return logits[wanted - logits_to_keep :, : self.vocab_size].copy()

    def _bind(self, inputs: Inputs) -> None:
        """Makes each array the request's tensor, in place, if it is not that already. Not every
        model asks where a token stands.
        """
        for name, value in inputs.items():
            if self._bound.get(name) is not value and name in self._model.inputs:
                self._request.set_tensor(name, ov.Tensor(value, shared_memory=True))
                self._bound[name] = value


@cache
def _last_rows(end: int, count: int) -> NDArray[np.int64]:
    return np.arange(end - count, end)


def _select_rows(model: ov.Model, token_axis: int) -> None:
    """Adds an input, int64[rows], that picks the hidden states whose logits are wanted."""
    node = model.output("logits").get_node().input_value(0).get_node()
    while node.get_type_name() != "MatMul":
        node = node.input_value(0).get_node()
    rows = ops.parameter([-1], np.int64, name=_ROWS)
    rows.output(0).set_names({_ROWS})
    picked = ops.gather(node.input_value(0), rows, ops.constant(token_axis, np.int64))
    node.input(0).replace_source_output(picked.output(0))
    model.add_parameters([rows])
    model.validate_nodes_and_infer_types()


def _measure_weights(model: ov.Model) -> tuple[int, str]:
    """How many weights there are in matrices, and the type that most of them have."""
    counts: Counter[str] = Counter()
    for node in model.get_ops():
        if node.get_type_name() == "Constant" and len(node.shape) > 1 and min(node.shape[:2]) > 1:
            counts[node.get_element_type().get_type_name()] += int(np.prod(node.shape))
    return counts.total(), _WEIGHT_NAMES.get(name := counts.most_common(1)[0][0], name)


def weight_bytes(folder: Path) -> int:
    """Of the IR in a folder; 0 if there is none."""
    file = folder / _BIN
    return file.stat().st_size if file.is_file() else 0


def check_device(device: str) -> None:
    """Raises UserError unless OpenVINO has it here. "AUTO" and the like, which choose among those,
    take none of the properties that being lossless rests on.
    """
    there = ov.Core().available_devices
    if device.partition(".")[0] not in (name.partition(".")[0] for name in there):
        raise UserError("device", device, f"choose {', '.join(there)}")


def _read_model(folder: Path) -> ov.Model:
    try:
        model = ov.Core().read_model(folder / _XML)
    except RuntimeError as error:
        remedy = f"replace the damaged files or convert the model again ({_last_line(error)})"
        raise UserError("model", str(folder), remedy) from None
    if not model.get_sinks() or all("logits" not in port.get_names() for port in model.outputs):
        remedy = "is no language model with a state; convert it with: python -m pipeline.convert"
        raise UserError("model", str(folder), remedy)
    return model


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1][:200]


def _read_config(folder: Path) -> tuple[str, int, int]:
    """The family, the size of the vocabulary, and of the context where it has an end."""
    for name in (_XML, _BIN, _CONFIG):
        if not (folder / name).is_file():
            raise UserError("model", str(folder), f"add its {name}, or convert the model again")
    try:
        config = json.loads((folder / _CONFIG).read_text())
        contexts = [int(config[name]) for name in _CONTEXTS if config.get(name)]
        context = contexts[0] if contexts else _ENDLESS
        return str(config["model_type"]), int(config["vocab_size"]), context
    except (ValueError, KeyError, TypeError, AttributeError):
        remedy = f"replace its damaged {_CONFIG}, or convert the model again"
        raise UserError("model", str(folder), remedy) from None
