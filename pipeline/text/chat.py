"""Prompts of models without Dolly's format: their own chat template, or plain text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pipeline.errors import UserError
from pipeline.models.json_file import read_json

_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")


class ChatTemplate:
    """A chat template as in transformers: Jinja, run in a sandbox (transformers' documentation,
    "Chat templates").

    Args:
        source: the template's text.
        special: the texts of the special tokens that it may use, by name.

    Raises:
        UserError: the template is invalid.
    """

    def __init__(self, source: str, special: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        self._special = special
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise UserError("chat template", source, f"cannot be read ({error})") from None

    def render(self, instruction: str, context: str) -> str:
        """The prompt of a single user message, up to the start of the answer."""
        text = f"{context}\n\n{instruction}" if context else instruction
        messages = [{"role": "user", "content": text}]
        try:
            return self._template.render(
                messages=messages, add_generation_prompt=True, **self._special
            )
        except (TemplateError, TypeError, ValueError) as error:
            raise UserError("chat template", text, f"does not take it ({error})") from None


def find_template(folder: Path) -> ChatTemplate | None:
    """The chat template in a model's folder; None if it has none."""
    config = special_tokens(folder)
    file = folder / "chat_template.jinja"
    source = file.read_text(encoding="utf-8") if file.is_file() else config.get("chat_template")
    if isinstance(source, list):  # several, by name
        source = next((t["template"] for t in source if t["name"] == "default"), None)
    if not source:
        return None
    return ChatTemplate(source, {name: config[name] for name in _SPECIAL if name in config})


def special_tokens(folder: Path) -> dict[str, Any]:
    """The values of `tokenizer_config.json`, special tokens as text; empty without the file."""
    config = read_json(folder / "tokenizer_config.json")
    tokens = {name: config[name] for name in _SPECIAL if config.get(name)}
    texts = {n: t["content"] if isinstance(t, dict) else t for n, t in tokens.items()}
    return {name: value for name, value in config.items() if name not in _SPECIAL} | texts


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
