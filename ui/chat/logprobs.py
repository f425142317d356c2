"""Log-probabilities of an answer's tokens, in OpenAI's shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline.decoding.events import Finish, FinishReason, Step
from pipeline.trace.recording import Update

Entry = dict[str, Any]  # of a token: `token`, `logprob`, `bytes` and `top_logprobs`


class Logprobs:
    """The entries of the tokens of one answer, each with the text that it belongs to. Tokens of
    which no text is emitted, as the end key and those of a stop text, have none.

    Args:
        token_bytes: returns the text of a single token.
    """

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._waiting: list[Entry] = []

    def of(self, update: Update) -> list[Entry]:
        """The entries of the text that an update adds."""
        event, ready = update.event, list[Entry]()
        if isinstance(event, Step):
            for token, logprob in zip(update.tokens, event.logprobs, strict=True):
                top = [self._entry(each, value) for each, value in logprob.top]
                entry = self._entry(token.id, logprob.value) | {"top_logprobs": top}
                self._waiting.append(entry)
                if token.text:
                    ready, self._waiting = ready + self._waiting, []
        elif isinstance(event, Finish) and update.rest:  # no stop text came: the end key may have
            ready = self._waiting[:-1] if event.reason is FinishReason.STOP else self._waiting
        return ready

    def _entry(self, token: int, logprob: float) -> Entry:
        text = self._token_bytes(token)
        return {"token": text.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(text)}
