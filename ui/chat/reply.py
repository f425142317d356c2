"""An answer in the shape of OpenAI's chat completions, whole or in chunks."""

from __future__ import annotations

import time
import uuid
from typing import Any

from pipeline.trace.record import Lane, Trace
from ui.chat.logprobs import Entry


class Reply:
    """The answer of one model to one request.

    Args:
        model: the name that the request gave.
        include_usage: every chunk has the field `usage`.
    """

    def __init__(self, model: str, include_usage: bool = False) -> None:
        self._about = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
        }
        self._no_usage = {"usage": None} if include_usage else {}

    def whole(self, trace: Trace, lane: Lane, entries: list[Entry] | None) -> dict[str, Any]:
        """The completion, with the log-probabilities of its tokens if they were asked for."""
        message = {"role": "assistant", "content": lane.text, "refusal": None}
        return {
            **self._about,
            "object": "chat.completion",
            "choices": [_choice("message", message, lane.finish, entries)],
            "usage": usage(trace, lane),
        }

    def chunk(
        self,
        delta: dict[str, str],
        finish_reason: str | None = None,
        entries: list[Entry] | None = None,
    ) -> dict[str, Any]:
        """A part of the completion."""
        choice = _choice("delta", delta, finish_reason, entries)
        return {**self._chunk, "choices": [choice], **self._no_usage}

    def usage_chunk(self, trace: Trace, lane: Lane) -> dict[str, Any]:
        """The last chunk of a stream that includes the usage."""
        return {**self._chunk, "choices": [], "usage": usage(trace, lane)}

    @property
    def _chunk(self) -> dict[str, Any]:
        return {**self._about, "object": "chat.completion.chunk"}


def _choice(
    kind: str, text: object, finish_reason: str | None, entries: list[Entry] | None
) -> dict[str, Any]:
    logprobs = None if entries is None else {"content": entries, "refusal": None}
    return {"index": 0, kind: text, "logprobs": logprobs, "finish_reason": finish_reason}


def usage(trace: Trace, lane: Lane) -> dict[str, Any]:
    """Token counts. Of speculative decoding also the figures of `Lane.metrics`, and the drafts that
    are in the answer and those that are not, by OpenAI's names for predicted outputs.
    """
    metrics = lane.metrics
    prompt, completion = len(trace.prompt_tokens), len(lane.tokens)
    accepted = sum(token.origin.kept for token in lane.tokens)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "completion_tokens_details": {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": lane.drafted - accepted,
        },
        "mean_acceptance_length": metrics["mean_acceptance_length"],
        "draft_acceptance_rate": metrics["draft_acceptance_rate"],
    }
