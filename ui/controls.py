"""The form: what a visitor asks, and how it is to be answered."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import gradio as gr

from pipeline.pairs import Pair
from pipeline.request import MAX_DRAFT_LENGTH, Request

_DRAFTERS = [
    ("the draft model", "model"),
    ("lookup: copies what the text said before", "lookup"),
    ("hybrid: whichever promises more", "hybrid"),
]
_KV_CACHES = [
    ("paged: rolls back at no cost", "paged"),
    ("stateful: trims what was rejected", "stateful"),
    ("stateful, rejected slots masked", "stateful-masked"),
    ("uncached: the whole text in every run", "uncached"),
]
_KV_PRECISIONS = [("what is lossless", None), "f32", "f16", "u8"]
_DEFAULT = {field.name: field.default for field in fields(Request)}


class Controls:
    """Draws the form where it is made. `inputs` are in the order of `Request`'s fields."""

    def __init__(self, pair: Pair) -> None:
        with gr.Column(elem_id="ask"):
            with gr.Row(elem_id="prompt"):
                self.instruction = gr.Textbox(
                    pair.chips[0].instruction if pair.chips else "",
                    label="Instruction",
                    placeholder="What should Dolly do?",
                    lines=2,
                    max_lines=8,
                    scale=8,
                    elem_id="instruction",
                )
                self.run = gr.Button("Run both", variant="primary", elem_id="run", min_width=104)
                self.stop = gr.Button("Stop", elem_id="stop", min_width=72)
            with gr.Row(elem_id="chips"):
                chips = [gr.Button(chip.label, size="sm", min_width=0) for chip in pair.chips]
            with gr.Accordion("Context: a passage to answer from", open=False, elem_id="context"):
                self.context = gr.Textbox(
                    show_label=False, label="Context", lines=4, max_lines=12, container=False
                )
            with gr.Accordion("Settings", open=False, elem_id="settings"):
                settings = _settings()
        for button, chip in zip(chips, pair.chips, strict=True):
            button.click(
                lambda chip=chip: (chip.instruction, chip.context),
                outputs=[self.instruction, self.context],
                queue=False,
                show_progress="hidden",
                api_visibility="private",
            )
        self.inputs = [self.instruction, self.context, *(settings[name] for name in _settable())]


def to_request(*values: Any) -> Request:
    """The request that a form holds, its values in the order of `Controls.inputs`.

    Raises:
        UserError: a value is outside its range.
    """
    instruction, context, *settings = values
    named = dict(zip(_settable(), map(_number, settings), strict=True))
    return Request(instruction or "", context or "", **named)


def _settable() -> list[str]:
    return [field.name for field in fields(Request)][2:]


def _number(value: Any) -> Any:
    """Sliders give 4.0 where they mean 4."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _settings() -> dict[str, Any]:
    with gr.Row():
        draft_length = gr.Dropdown(
            [("auto: what pays", "auto"), *range(1, MAX_DRAFT_LENGTH + 1)],
            value=_DEFAULT["draft_length"],
            label="Draft length K",
            info="tokens drafted per target run",
        )
        temperature = gr.Slider(
            0, 2, _DEFAULT["temperature"], step=0.05, label="Temperature", info="0 is greedy"
        )
        top_p = gr.Slider(
            0.05, 1, _DEFAULT["top_p"], step=0.05, label="Top-p", info="1 keeps every token"
        )
    with gr.Row():
        max_new_tokens = gr.Number(
            _DEFAULT["max_new_tokens"], label="New tokens", precision=0, min_width=120
        )
        top_k = gr.Number(
            _DEFAULT["top_k"], label="Top-k (0 keeps all)", precision=0, min_width=120
        )
        seed = gr.Number(_DEFAULT["seed"], label="Seed", precision=0, min_width=120)
        drafter = gr.Dropdown(_DRAFTERS, value=_DEFAULT["drafter"], label="Drafter")
        kv_cache = gr.Dropdown(_KV_CACHES, value=_DEFAULT["kv_cache"], label="KV cache")
        kv_precision = gr.Dropdown(
            _KV_PRECISIONS, value=_DEFAULT["kv_precision"], label="KV precision"
        )
    return {
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "seed": seed,
        "draft_length": draft_length,
        "kv_cache": kv_cache,
        "drafter": drafter,
        "kv_precision": kv_precision,
    }
