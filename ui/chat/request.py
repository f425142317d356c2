"""A request of the chat API, and the `Request` that it stands for.

Dolly answers one instruction, perhaps with a context; it was never trained on conversations. So the
last message, which must be the user's, is the instruction. System messages and earlier turns go
into the context, in their order, the turns behind "User:" and "Assistant:".
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from pipeline.decoding.drafters.block import BLOCK
from pipeline.decoding.drafters.lookup import LOOKUP
from pipeline.decoding.drafters.model import MODEL
from pipeline.errors import UserError
from pipeline.models.pairs import Pair
from pipeline.request import MAX_SEED, SETTINGS, Request

# The fields of a `Request` that clients set by the same name; and, for errors, all parameters.
_SETTINGS = [name for name, setting in SETTINGS.items() if setting.chat]
_NAMES = {setting.name: name for name, setting in SETTINGS.items()} | {
    "logprobs": "top_logprobs",
    "instruction": "messages",
    "context": "messages",
}
_SPEAKERS = {"user": "User: ", "assistant": "Assistant: "}
_IGNORED = frozenset(  # they change neither the text nor the form of the answer
    {
        "metadata",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)
_NEUTRAL: Mapping[str, tuple[object, ...]] = {  # the values that ask for nothing
    "frequency_penalty": (0,),
    "functions": ([],),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "n": (1,),
    "presence_penalty": (0,),
    "response_format": ({"type": "text"},),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
}


def _joined(content: object) -> object:
    """The text of a content that is a list of text parts; any other content as it is."""
    if not isinstance(content, list):
        return content
    texts = [part["text"] for part in content if _is_text(part)]
    return "\n".join(texts) if len(texts) == len(content) else content


def _is_text(part: object) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str)


class Message(BaseModel):
    """One message, of text only. `developer` is OpenAI's newer name of `system`."""

    model_config = ConfigDict(strict=True)

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str, BeforeValidator(_joined)]


class StreamOptions(BaseModel):
    model_config = ConfigDict(strict=True)

    include_usage: bool | None = None


class ChatRequest(BaseModel):
    """The parameters of `/v1/chat/completions` that are supported, besides `_SETTINGS`.

    Without a temperature decoding is greedy, as on the page. Without a seed, sampling uses a random
    one. With one, the sampled text is always the same: the draft length is then fixed, and the
    drafter one whose drafts do not depend on measured times. `max_completion_tokens` precedes
    `max_tokens`, its older name.
    """

    model_config = ConfigDict(strict=True, extra="allow")

    model: str
    messages: list[Message] = Field(min_length=1)
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def request(self, pair: Pair) -> Request:
        """The request to the pair, with its defaults.

        Raises:
            UserError: a value is outside its range.
        """
        *earlier, last = self.messages
        if last.role != "user":
            raise UserError("messages", last.role, "let the last one be the user's")
        context = "\n\n".join(_SPEAKERS.get(m.role, "") + m.content for m in earlier)
        limit = "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"
        extra = self.model_extra or {}
        given = {name: extra[name] for name in _SETTINGS if extra.get(name) is not None}
        seeded = "seed" in given
        given.setdefault("seed", secrets.randbelow(MAX_SEED + 1))
        if (budget := getattr(self, limit)) is not None:
            given["max_new_tokens"] = budget
        if self.top_logprobs and not self.logprobs:
            raise UserError("top_logprobs", self.top_logprobs, "set logprobs to true")
        if self.logprobs:
            given["logprobs"] = self.top_logprobs or 0
        sampled = seeded and given.get("temperature")
        settings = _untimed(pair) if sampled else pair.settings
        try:
            return Request(last.content, context, **{**settings, **given})
        except UserError as error:
            names = {**_NAMES, "new tokens": limit}
            name = names.get(error.field, error.field)
            raise UserError(name, _plain(error.value), error.remedy) from None


def _untimed(pair: Pair) -> dict[str, Any]:
    """The pair's settings without those by which a seeded text depends on measured times or on
    earlier requests.
    """
    drafter = next(each.name for each in (BLOCK, MODEL, LOOKUP) if each.name in pair.drafters)
    kept = {name: value for name, value in pair.settings.items() if value != "auto"}
    return {**kept, "drafter": drafter}


def parse_chat_request(body: bytes) -> ChatRequest:
    """Reads a request from untrusted JSON.

    Raises:
        UserError: it is invalid, or it has a parameter that is not supported.
    """
    try:
        asked = ChatRequest.model_validate_json(body)
    except ValidationError as error:
        raise _misfit(error) from None
    for name, value in (asked.model_extra or {}).items():
        if name in _IGNORED or name in _SETTINGS or value is None:
            continue
        if value not in _NEUTRAL.get(name, ()):
            raise UserError(name, _plain(value), "not supported; leave it out")
    return asked


def _misfit(error: ValidationError) -> UserError:
    """The first of pydantic's errors, whose texts are like "Input should be a valid string"."""
    first = error.errors(include_url=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        return UserError("body", first["msg"], "send JSON")
    where = "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in first["loc"])
    if first["type"] == "missing":
        return UserError(where.lstrip("."), "nothing", "it must be there")
    wanted = first["msg"].partition(" should ")[2]
    return UserError(where.lstrip(".") or "body", _plain(first["input"]), f"it must {wanted}")


def _plain(value: object) -> object:
    """The value; of a list or an object, its type."""
    return type(value).__name__ if isinstance(value, list | dict) else value
