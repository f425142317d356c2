"""The interfaces of a cache policy and of its caches. The policies are in `registry`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pipeline.runtime.kv_cache.memory import KVMemory
from pipeline.runtime.kv_cache.precision import KVPrecision

if TYPE_CHECKING:
    import openvino as ov

MAX_DECODE_TOKENS = 9  # of a forward pass in decoding: 8 drafted tokens and the one before them

Inputs = dict[str, NDArray[np.int32] | NDArray[np.int64]]
Properties = Mapping[str, str | int | bool]


class UnsupportedPolicyError(Exception):
    """The model or the device does not support this policy; the fallback is used."""


class KVCache(Protocol):
    """One sequence's keys and values, and the model inputs that locate them."""

    @property
    def nbytes(self) -> int:
        """Bytes held for this sequence."""
        ...

    def __len__(self) -> int:
        """Tokens that the next one attends to."""
        ...

    def append(self, tokens: Sequence[int], pad_to: int = 0) -> Inputs:
        """Allocates slots for `tokens`; returns the inputs of the forward pass that fills them.

        Args:
            tokens: n of them. The last n rows of the forward pass are theirs.
            pad_to: tokens to pad a pass in decoding to, for caches where that is cheap.

        Returns:
            Arrays of the cache, which the next call may overwrite.
        """
        ...

    def rollback(self, length: int) -> None:
        """Drops all but the first `length` tokens.

        Raises:
            ValueError: `length` is negative or more than is cached.
        """
        ...


@runtime_checkable
class PrefixSharing(Protocol):
    """A cache that can start with the contents of another cache of the same model."""

    def start_from(self, prefix: Any) -> None:
        """Shares the contents of `prefix`, a cache of the same class. Later changes to one do not
        affect the other.
        """
        ...


@dataclass(frozen=True, slots=True)
class Rotary:
    """Rotary position embeddings of the default type, in which the first half of the channels is
    paired with the second.

    Attributes:
        base: the base of the angles ("theta").
        share: the share of each head's channels that are rotated.
    """

    base: float
    share: float


@dataclass(frozen=True, slots=True)
class CacheSetup:
    """What the caches of one model have in common.

    Attributes:
        compiled: the model.
        lock: held during each forward pass.
        lossless: whether logits must not depend on the number of tokens in a forward pass.
        kv_memory: the memory of the pair's caches.
        rotary: the model's position embeddings; None where they are of another type.
    """

    compiled: ov.CompiledModel
    lock: Lock
    lossless: bool
    kv_memory: KVMemory
    rotary: Rotary | None = None


def _leave(model: ov.Model, family: str, device: str) -> None:
    """The stateful graph, as optimum-intel exports it, needs no preparation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePolicy:
    """A cache policy. The defaults are those of a stateful graph.

    Attributes:
        name: its name in requests, in traces and on the command line.
        summary: a few words for a menu.
        about: how keys and values are stored, to follow "This run keeps its keys and values".
        caches: returns a function that makes the cache of an infer request.
        prepare: rewrites, in place, a model of a family for a device; raises
            UnsupportedPolicyError with the reason if it is not supported.
        token_axis: the axis of tokens in hidden states.
        precision: the precision of keys and values, unless a request names one.
        precisions: that they can have.
        lossless_properties: properties that make logits independent of the number of tokens
            in a forward pass.
        prefill_chunk: tokens of a prompt read in one forward pass; None reads it whole.
        prefill_multiple: such a pass is padded to a multiple of this.
        block_size: tokens a block holds; None without blocks.
        limitable: whether its memory can be limited: it is in pools of blocks, or there is none.
        exact: every token attends to all tokens before it, so that logits do not depend on what
            was cached, and speculation is lossless.
        unbounded: a text may be longer than the model's context.
    """

    name: str
    summary: str
    about: str
    caches: Callable[[CacheSetup], Callable[[ov.InferRequest], KVCache]]
    prepare: Callable[[ov.Model, str, str], None] = _leave
    token_axis: int = 1
    precision: KVPrecision = "f32"
    precisions: tuple[KVPrecision, ...] = get_args(KVPrecision)
    lossless_properties: Properties = field(
        default_factory=lambda: {"DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    )
    prefill_chunk: int | None = None
    prefill_multiple: int = 1
    block_size: int | None = None
    limitable: bool = False
    exact: bool = True
    unbounded: bool = False
