"""Quantisation-aware training: INT4 weights in the forward pass, float32 masters behind them.

The optimiser updates float32 masters; before every step the model's matrices are overwritten with
what NNCF's INT4 makes of those, so the loss is the shipped model's, and the gradient passes
straight through the rounding (Bengio et al. 2013, arXiv 1308.3432). The rounding is NNCF's own:
asymmetric, from the smallest to the largest weight of a group, zero included.
"""

from __future__ import annotations

import torch

_LEVELS = 15  # of four bits, above zero
_TINY = 1.2e-7  # float32's epsilon: NNCF's smallest scale


@torch.no_grad()
def int4(weights: torch.Tensor, group: int) -> torch.Tensor:
    """`weights` after INT4 and back: float32 of the same shape; the last axis is cut in groups."""
    groups = weights.reshape(-1, group)
    low = groups.amin(1, keepdim=True).clamp_(max=0)
    scale = ((groups.amax(1, keepdim=True).clamp_(min=0) - low) / _LEVELS).clamp_(min=_TINY)
    zero = (-low / scale).round_().clamp_(0, _LEVELS)
    levels = (groups / scale).add_(zero).round_().clamp_(0, _LEVELS)
    return levels.sub_(zero).mul_(scale.half().float()).view_as(weights)


class Int4Training:
    """Float masters for the matrices of a model's layers; everything else is trained as it is.

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
        """Before a forward pass: the model's matrices are those that would be shipped."""
        for parameter, master in self._quantised:
            parameter.data.copy_(int4(master.data, self._group))

    def pass_gradients(self) -> None:
        """After a backward pass: the masters get the gradients."""
        for parameter, master in self._quantised:
            master.grad, parameter.grad = parameter.grad, None

    def restore(self) -> None:
        """At the end: the model's matrices are the masters."""
        for parameter, master in self._quantised:
            parameter.data.copy_(master.data)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The model's, with the masters in place of what they were quantised to."""
        masters = {name: master.detach() for name, master in self._masters.items()}
        return self._model.state_dict() | masters
