"""The loss of a draft. It aims at acceptance (LK loss, arXiv 2602.23881).

With p the target's and q the draft's distribution, and a = sum min(p, q) the chance that a drafted
token passes, it is lambda KL(p, q) + (1 - lambda) TV(p, q) with lambda = exp(-3 a): likelihood
first, acceptance later.
"""

from __future__ import annotations

import torch

_SHARPNESS = 3.0


def acceptance_loss(
    logits: torch.Tensor, tokens: torch.Tensor, probs: torch.Tensor, unknown: int
) -> torch.Tensor:
    """The LK loss at each position, float[n], in nats.

    Args:
        logits: the draft's, [n, vocabulary].
        tokens: int64[n, top], the target's likeliest, as the draft's rows.
        probs: float[n, top], the target's.
        unknown: the row of tokens that the draft lacks, whose mass can never be accepted.
    """
    probs = probs.float() * (tokens != unknown)
    logs = logits.float().log_softmax(-1).gather(-1, tokens)
    passes = torch.minimum(probs, logs.exp()).sum(-1)
    weight = torch.exp(-_SHARPNESS * passes.detach())
    return weight * -(probs * logs).sum(-1) + (1 - weight) * (1 - passes)
