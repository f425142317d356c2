"""The interfaces of language models for decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Hidden = NDArray[np.float32]  # [tokens, layers * width]


class Output(NamedTuple):
    """The result of one forward pass.

    Attributes:
        logits: float32[logits_to_keep, vocab], after each of the last tokens fed in.
        hidden: float32[len(tokens), layers * width], the hidden states of the layers that the
            sequence was made for, after every token fed in, layers side by side. None if it was
            made for none.
    """

    logits: NDArray[np.float32]
    hidden: Hidden | None = None


class Cached(Protocol):
    """What has read the tokens of one sequence, and can forget the last of them."""

    @property
    def kv_bytes(self) -> int:
        """Bytes that its KV cache holds."""
        ...

    def __len__(self) -> int:
        """Tokens that it has read."""
        ...

    def rollback(self, length: int) -> None:
        """Drops all but the first `length` tokens; raises ValueError if it has read fewer."""
        ...


class CausalLM(Cached, Protocol):
    """One sequence of a model, with its own KV cache.

    Attributes:
        vocab_size: how many logits a token has.
        token_ids: int64[vocab_size], ascending, the token of each logit, where the model has only
            some of the vocabulary; None if logit i is of token i.
    """

    vocab_size: int
    token_ids: NDArray[np.int64] | None

    def forward(self, tokens: Sequence[int], logits_to_keep: int, pad_to: int = 0) -> Output:
        """Appends `tokens` and runs the model over them; without tokens, nothing runs.

        Args:
            tokens: ids, int[n].
            logits_to_keep: how many of the last tokens need logits, at most n.
            pad_to: tokens to pad the forward pass to, where that is cheap. Padding is not cached.
        """
        ...


class BlockDraft(Cached, Protocol):
    """One sequence of a model that predicts several tokens in one forward pass, with its own cache.

    Attributes:
        vocab_size, token_ids: as a `CausalLM`'s.
        length: how many tokens it predicts at most.
    """

    vocab_size: int
    token_ids: NDArray[np.int64] | None
    length: int

    def forward(self, tokens: Sequence[int], hidden: Hidden, length: int) -> NDArray[np.float32]:
        """Appends tokens, and predicts the next `length` of them.

        Args:
            tokens: ids, int[n], at least one.
            hidden: the target's hidden states that each of them was predicted from.

        Returns:
            logits float32[length, vocab]. The first are those of the next token; of the later ones,
            `after` gives the logits once the token before is known.
        """
        ...

    def after(self, logits: NDArray[np.float32], previous: int) -> NDArray[np.float32]:
        """The logits of a later token, float32[vocab], if the token before it is `previous`."""
        ...
