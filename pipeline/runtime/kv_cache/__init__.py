"""How the keys and values of one sequence are kept, behind one Protocol.

Importing this package loads no OpenVINO; its implementations do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

KVCacheKind = Literal["paged", "stateful", "stateful-masked", "uncached"]
KVPrecision = Literal["f32", "f16", "u8", "u4"]

Inputs = dict[str, NDArray[np.int32] | NDArray[np.int64]]


def kv_type(compiled: Any) -> Any:
    """The `openvino.Type` of a compiled model's keys and values: what the plugin made of the
    request, which an IR's own settings may override. Devices that do not tell keep them as they
    compute.
    """
    names = compiled.get_property("SUPPORTED_PROPERTIES")
    name = "KV_CACHE_PRECISION" if "KV_CACHE_PRECISION" in names else "INFERENCE_PRECISION_HINT"
    return compiled.get_property(name)


class KVCache(Protocol):
    """One sequence's keys and values, and the model inputs that say where they lie."""

    @property
    def nbytes(self) -> int:
        """Bytes held for this sequence."""
        ...

    def __len__(self) -> int:
        """Tokens that count as past."""
        ...

    def append(self, tokens: Sequence[int], width: int = 0) -> Inputs:
        """Makes room for n `tokens`; returns the inputs of the run that fills it.

        A decoding run is padded to `width` tokens, where padding need not be rolled back.

        The run's last n rows belong to `tokens`. The arrays are the cache's, which may write to
        them at the next call.
        """
        ...

    def rollback(self, length: int) -> None:
        """Forgets all past `length`.

        Raises:
            ValueError: `length` is negative or more than is cached.
        """
        ...
