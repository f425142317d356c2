"""An answer in the shape of OpenAI's chat completions, whole or in chunks."""

from __future__ import annotations

import time
import uuid
from typing import Any

from pipeline.trace.record import Lane, Trace


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

    def whole(self, trace: Trace, lane: Lane) -> dict[str, Any]:
        """The completion."""
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": lane.text, "refusal": None},
            "logprobs": None,
            "finish_reason": lane.finish,
        }
        about = {**self._about, "object": "chat.completion"}
        return {**about, "choices": [choice], "usage": usage(trace, lane)}

    def chunk(self, delta: dict[str, str], finish_reason: str | None = None) -> dict[str, Any]:
        """A part of the completion."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {**self._chunk, "choices": [choice], **self._no_usage}

    def usage_chunk(self, trace: Trace, lane: Lane) -> dict[str, Any]:
        """The last chunk of a stream that includes the usage."""
        return {**self._chunk, "choices": [], "usage": usage(trace, lane)}

    @property
    def _chunk(self) -> dict[str, Any]:
        return {**self._about, "object": "chat.completion.chunk"}


def usage(trace: Trace, lane: Lane) -> dict[str, Any]:
    """Token counts. Of speculative decoding also the figures of `Lane.metrics`, and the drafts that
    were accepted and those that were not, by OpenAI's names for predicted outputs.
    """
    metrics = lane.metrics
    prompt, completion = len(trace.prompt_tokens), len(lane.tokens)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "completion_tokens_details": {
            "accepted_prediction_tokens": lane.accepted,
            "rejected_prediction_tokens": lane.drafted - lane.accepted,
        },
        "mean_acceptance_length": metrics["mean_acceptance_length"],
        "draft_acceptance_rate": metrics["draft_acceptance_rate"],
    }
