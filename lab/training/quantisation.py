"""Quantisation-aware training: INT4 weights in the forward pass, float32 master weights.

The optimiser updates the float32 master weights. Before every step the model's matrices are
overwritten with their INT4 values, so the loss is that of the shipped model; gradients pass
straight through the rounding (Bengio et al. 2013, arXiv 1308.3432). The rounding is NNCF's
symmetric one: the largest magnitude of a group becomes the level -8.
"""

from __future__ import annotations

import torch

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


class Int4Training:
    """Float32 master weights of a model's layer matrices; other weights are trained directly.

    Args:
        model: its layers' matrices are quantised; embeddings and norms are not.
        group: weights that share a scale; 0 quantises nothing.
    """

    def __init__(self, model: torch.nn.Module, group: int) -> None:
        self._model, self._group = model, group
        self._masters = {
            name: torch.nn.Parameter(parameter.detach().clone())
            for name, parameter in model.named_parameters()
            if group and ".layers." in name and parameter.ndim == 2
        }
        named = model.named_parameters()
        self._quantised = [(p, self._masters[name]) for name, p in named if name in self._masters]
        self.parameters = [self._masters.get(name, p) for name, p in model.named_parameters()]

    def quantise(self) -> None:
        """Before a forward pass: sets the model's matrices to the INT4 values."""
        for parameter, master in self._quantised:
            parameter.data.copy_(int4(master.data, self._group))

    def pass_gradients(self) -> None:
        """After a backward pass: moves the gradients to the master weights."""
        for parameter, master in self._quantised:
            master.grad, parameter.grad = parameter.grad, None

    def restore(self) -> None:
        """At the end: sets the model's matrices to the master weights."""
        for parameter, master in self._quantised:
            parameter.data.copy_(master.data)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The model's state dict, with the master weights in place of the quantised ones."""
        masters = {name: master.detach() for name, master in self._masters.items()}
        return self._model.state_dict() | masters
