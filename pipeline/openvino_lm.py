"""`OVModel`, compiled weights that many may share, and `OVCausalLM`, one sequence of one model.

Knows OpenVINO and token ids; not what they mean, nor how they are chosen.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np
import openvino as ov
import openvino.opset13 as ops
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.kv_cache import KVCache, KVCacheKind, KVPrecision, paged
from pipeline.kv_cache.paged import PagedKVCache
from pipeline.kv_cache.stateful import MaskedKVCache, StatefulKVCache
from pipeline.kv_cache.uncached import Uncached

_CACHES: dict[KVCacheKind, Callable[[ov.InferRequest], KVCache]] = {
    "paged": PagedKVCache,
    "stateful": StatefulKVCache,
    "stateful-masked": MaskedKVCache,
    "uncached": Uncached,
}
_ROWS = "logit_rows"
_WEIGHT_NAMES = {"u8": "INT8", "i8": "INT8", "u4": "INT4", "i4": "INT4"}
# With a cache that forgets for free, a long run is cut and padded to widths that were warmed: the
# first run of each width compiles kernels, and no user should wait for that.
_MOST_DECODED = 9  # tokens in the widest verification
_CHUNK, _PAD_TO = 64, 32
_XML, _BIN, _CONFIG = "openvino_model.xml", "openvino_model.bin", "config.json"


class OVModel:
    """A GPT-NeoX IR, compiled for one kind of cache. Holds no sequence.

    Losslessness is a property of the kernels. The CPU plugin quantises activations on the fly,
    and a run of one token takes another kernel than a run of several, so their logits differ by
    more than the gap between two good tokens. What makes them agree depends on the cache:

    - paged: an f16 or f32 cache, and single tokens padded to a run of two whose second slot is
      rolled back. Runs of 2 to 9 tokens then give bit-identical logits.
    - the others cannot roll a pad back for free: f32 states, activations not quantised.

    Args:
        folder: `openvino_model.xml`, `.bin` and `config.json`, as optimum-intel writes them.
        kv_cache: how its sequences keep their keys and values.
        kv_precision: of the cache; None takes f16 for paged and f32 for the others.
        lossless: logits do not depend on how many tokens are run at once. Off, everything is as
            fast as the plugin can make it.
        threads: of inference; 0 leaves it to OpenVINO.
        properties: further ones for the plugin; they win over what the others imply.

    Raises:
        UserError: a file is missing, truncated, or not a GPT-NeoX model.
    """

    def __init__(
        self,
        folder: Path,
        kv_cache: KVCacheKind = "paged",
        kv_precision: KVPrecision | None = None,
        lossless: bool = True,
        threads: int = 0,
        properties: Mapping[str, str | int | bool] | None = None,
    ) -> None:
        self.kv_cache = kv_cache
        config = _read_config(folder)
        self.vocab_size: int = config["vocab_size"]
        self.context_length: int = config["max_position_embeddings"]
        self.weight_bytes = (folder / _BIN).stat().st_size
        self.free_rollback = kv_cache == "paged"
        self.least_tokens = 2 if lossless and self.free_rollback else 1

        model = _read_model(folder)
        self.parameters, self.weights = _measure_weights(model)
        if kv_cache == "paged":
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
        self._compiled = ov.Core().compile_model(model, "CPU", options | dict(properties or {}))
        # What the plugin made of the request, which an IR's own settings may override.
        self.kv_precision: str = self._compiled.get_property("KV_CACHE_PRECISION").get_type_name()

    def sequence(self, vocab_size: int | None = None) -> OVCausalLM:
        """A new, empty sequence with a cache of its own; the weights are shared.

        Args:
            vocab_size: cut the logits to this many, if the model has more: rows that padding
                added, or tokens it was never taught.
        """
        request = self._compiled.create_infer_request()
        vocab_size = min(vocab_size or self.vocab_size, self.vocab_size)
        return OVCausalLM(self, request, _CACHES[self.kv_cache](request), vocab_size)

    def warm(self) -> tuple[float, ...]:
        """Runs every token count that decoding uses: each compiles kernels the first time.

        Returns:
            The seconds of a run of 1, 2, … 9 tokens with all their logits, medians of five.
        """
        sequence = self.sequence()

        def seconds(count: int) -> float:
            start = perf_counter()
            sequence.forward([0] * count, rows=min(count, _MOST_DECODED))
            took = perf_counter() - start
            sequence.rollback(0)
            return took

        counts = range(1, _MOST_DECODED + 1)
        for count in (*counts, _PAD_TO, _CHUNK):
            seconds(count)
        turns = [[seconds(count) for count in counts] for _ in range(5)]
        return tuple(statistics.median(times) for times in zip(*turns, strict=True))


class OVCausalLM:
    """One sequence of a model. Made by `OVModel.sequence`.

    Input tensors are allocated once, by the request, and reshaped and written in place.
    """

    def __init__(
        self, model: OVModel, request: ov.InferRequest, cache: KVCache, vocab_size: int
    ) -> None:
        self.vocab_size = vocab_size
        self._free_rollback, self._least_tokens = model.free_rollback, model.least_tokens
        self._request, self._cache = request, cache
        self._tensors = {port.any_name: request.get_tensor(port) for port in request.model_inputs}
        self._logits = request.get_output_tensor()

    @property
    def kv_bytes(self) -> int:
        return self._cache.nbytes

    def __len__(self) -> int:
        return len(self._cache)

    def forward(self, tokens: Sequence[int], rows: int) -> NDArray[np.float32]:
        """Appends `tokens`; returns the logits after each of the last `rows` of them.

        Only these rows reach the vocabulary's matrix product. No tokens, no run.

        Returns:
            float32[rows, vocab], the caller's to keep.
        """
        if self._free_rollback:
            while len(tokens) > max(_CHUNK, rows):
                self._forward(tokens[:_CHUNK], rows=0)
                tokens = tokens[_CHUNK:]
        return self._forward(tokens, rows)

    def rollback(self, length: int) -> None:
        self._cache.rollback(length)

    def operations(self) -> dict[str, float]:
        """Seconds of the last run by kind of operation; needs the property PERF_COUNT."""
        seconds: defaultdict[str, float] = defaultdict(float)
        for node in self._request.profiling_info:
            seconds[node.node_type] += node.real_time.total_seconds()
        return dict(seconds)

    def _forward(self, tokens: Sequence[int], rows: int) -> NDArray[np.float32]:
        """One run."""
        if not tokens:
            return np.empty((0, self.vocab_size), np.float32)
        length = len(self._cache) + len(tokens)
        padding = self._padding(len(tokens))
        inputs = self._cache.append(np.array([*tokens, *[tokens[0]] * padding], np.int64))
        end = inputs["input_ids"].size - padding
        self._run({**inputs, _ROWS: np.arange(end - rows, end)})
        if padding:
            self._cache.rollback(length)
        if not rows:
            return np.empty((0, self.vocab_size), np.float32)
        logits: NDArray[np.float32] = self._logits.data.reshape(rows, -1)
        return logits[:, : self.vocab_size].copy()

    def _padding(self, count: int) -> int:
        """Tokens to add to a run of `count`, and to roll back after it."""
        if not self._free_rollback:
            return 0
        return -count % _PAD_TO if count > _MOST_DECODED else max(0, self._least_tokens - count)

    def _run(self, inputs: dict[str, NDArray[np.int32] | NDArray[np.int64]]) -> None:
        for name, value in inputs.items():
            tensor = self._tensors[name]
            tensor.shape = value.shape
            tensor.data[...] = value
        self._request.start_async()
        self._request.wait()


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


def _read_model(folder: Path) -> ov.Model:
    try:
        return ov.Core().read_model(folder / _XML)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        remedy = f"replace the damaged files or convert the model again ({reason})"
        raise UserError("model", str(folder), remedy) from None


def _read_config(folder: Path) -> dict[str, int]:
    for name in (_XML, _BIN, _CONFIG):
        if not (folder / name).is_file():
            raise UserError("model", str(folder), f"add its {name}, or convert the model again")
    try:
        config = json.loads((folder / _CONFIG).read_text())
        kind = config["model_type"]
        sizes = {name: int(config[name]) for name in ("vocab_size", "max_position_embeddings")}
    except (ValueError, KeyError, TypeError):
        remedy = f"replace its damaged {_CONFIG}, or convert the model again"
        raise UserError("model", str(folder), remedy) from None
    if kind != "gpt_neox":
        raise UserError("model", kind, "choose a GPT-NeoX model, such as Dolly v2 or Pythia")
    return sizes
