"""Quantisation-aware training: INT4 weights in the forward pass, float32 master weights.

The loss is that of the shipped model; gradients pass straight through the rounding (Bengio et al.
2013, arXiv 1308.3432). The rounding is NNCF's symmetric one: the largest magnitude of a group
becomes the level -8. Of a large model, what is trained of a matrix is a sum of low rank (LoRA, Hu
et al. 2021, arXiv 2106.09685), a third less to compute.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn.functional import linear
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


class Adapted(torch.nn.Module):
    """A linear layer whose weights are W + up down, of which `up` and `down` are trained, and
    quantised in the forward pass.

    Args:
        layer: with the weights W.
        rank: of up and down.
        group: weights that share a scale; 0 leaves them in float.
    """

    def __init__(self, layer: torch.nn.Linear, rank: int, group: int) -> None:
        super().__init__()
        self.layer, self._group = layer, group
        layer.weight.requires_grad_(False)
        self.down = torch.nn.Parameter(torch.empty(rank, layer.in_features))
        self.up = torch.nn.Parameter(torch.zeros(layer.out_features, rank))
        torch.nn.init.kaiming_uniform_(self.down, a=5**0.5)

    @torch.no_grad()
    def weights(self) -> torch.Tensor:
        """W + up down, as float32."""
        return self.layer.weight + self.up @ self.down

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        weights = self.weights()
        rounded = int4(weights, self._group) if self._group else weights
        outputs = linear(inputs, rounded, self.layer.bias)
        # The gradients of up and down, without those of W.
        added = linear(linear(inputs.detach(), self.down), self.up)
        return outputs + (added - added.detach())


def adapt(model: torch.nn.Module, rank: int, group: int) -> None:
    """From now on, trains the matrices of a model's layers as `Adapted`, and its vectors; its
    embeddings are not trained.
    """
    for parameter in model.parameters():
        parameter.requires_grad_(parameter.ndim < 2)
    for name, module in list(model.named_modules()):
        if ".layers." in name and isinstance(module, torch.nn.Linear):
            model.set_submodule(name, Adapted(module, rank, group))


def restore(model: torch.nn.Module) -> None:
    """Sets the model's matrices to the master weights, as plain parameters."""
    for name, module in list(model.named_modules()):
        if isinstance(module, Adapted):
            module.layer.weight.data = module.weights()
            model.set_submodule(name, module.layer)
    model.requires_grad_(True)
    for module in _matrices(model):
        if parametrize.is_parametrized(module, "weight"):
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=False)


@torch.no_grad()
def round_weights(model: torch.nn.Module, group: int) -> None:
    """Sets the matrices of a model's layers to what is left of them in INT4. Exported in INT4, they
    stay what they are; in INT8, which several texts at once are faster with, all but.
    """
    for module in _matrices(model):
        weight = module.weight
        assert isinstance(weight, torch.Tensor)
        weight.copy_(int4(weight, group))


def _matrices(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The modules of the layers that hold a matrix."""
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if ".layers." in name and isinstance(weight, torch.Tensor) and weight.ndim == 2:
            yield module
