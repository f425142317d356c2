"""The arrays that an infer request reads its inputs from."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]


class Bindings:
    """Binds arrays as the tensors of a request, without a copy.

    Args:
        inputs: the names of the model's; others, such as positions, are skipped.

    Attributes:
        bound: the array of each input.
    """

    def __init__(self, request: ov.InferRequest, inputs: frozenset[str]) -> None:
        self.bound: dict[str, NDArray[Any]] = {}
        self._request, self._inputs = request, inputs

    def bind(self, arrays: Arrays) -> None:
        """Binds each array unless it is bound already."""
        for name, value in arrays.items():
            if self.bound.get(name) is not value and name in self._inputs:
                self._request.set_tensor(name, ov.Tensor(value, shared_memory=True))
                self.bound[name] = value


@cache
def positions(begin: int, end: int) -> NDArray[np.int64]:
    """The same array for the same range, so that it stays bound."""
    return np.arange(begin, end)
