"""Quantisation-aware training: INT4 weights in the forward pass, float32 master weights.

The loss is that of the shipped model; gradients pass straight through the rounding (Bengio et al.
2013, arXiv 1308.3432). The rounding is NNCF's symmetric one: the largest magnitude of a group
becomes the level -8.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn.utils import parametrize

_LOWEST, _HIGHEST = -8, 7  # levels of four bits
_TINY = 1.2e-7  # float32's epsilon: NNCF's smallest scale


@torch.no_grad()
def int4(weights: torch.Tensor, group: int) -> torch.Tensor:
    """`weights` rounded to INT4, as float32 of the same shape; groups are along the last axis."""
    groups = weights.reshape(-1, group)
    low, high = groups.amin(1, keepdim=True).abs_(), groups.amax(1, keepdim=True)
    scale = torch.where(low >= high, low, -high) / -_LOWEST
    scale = torch.where(scale.abs() < _TINY, _TINY, scale)
    levels = (groups / scale).round_().clamp_(_LOWEST, _HIGHEST)
    return levels.mul_(scale.half().float()).view_as(weights)


class Int4(torch.nn.Module):
    """A parametrization of weights: rounded, with the gradients of the unrounded ones."""

    def __init__(self, group: int) -> None:
        super().__init__()
        self._group = group

    def forward(self, weights: torch.Tensor) -> torch.Tensor:
        return weights + (int4(weights, self._group) - weights).detach()


def quantise(model: torch.nn.Module, group: int) -> None:
    """Trains the matrices of a model's layers as INT4 from now on; embeddings and norms are not.

    Args:
        group: weights that share a scale.
    """
    for module in list(_matrices(model)):
        parametrize.register_parametrization(module, "weight", Int4(group))


def restore(model: torch.nn.Module) -> None:
    """Sets the model's matrices to the master weights, as plain parameters."""
    for module in _matrices(model):
        if parametrize.is_parametrized(module, "weight"):
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=False)


def _matrices(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The modules of the layers that hold a matrix."""
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if ".layers." in name and isinstance(weight, torch.Tensor) and weight.ndim == 2:
            yield module
