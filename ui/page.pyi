"""The page: what stands where, and which event calls what."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import gradio as gr
import plotly

from pipeline.errors import UserError
from pipeline.kv_cache import KVCacheKind
from pipeline.pairs import Pair
from pipeline.request import MAX_DRAFT_LENGTH, MAX_NEW_TOKENS, Request
from ui.feed import Feed
from ui.loader import Loader
from ui.runs import Runs
from ui.stream import stream
from ui.stage import STAGE_SCRIPT, STAGE_STYLE, stage_template

_ASSETS = Path(__file__).resolve().parents[1] / "assets"
PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
_WAITING = 16  # users in the queue; one race at a time keeps the timings true

from gradio.events import Dependency

class Range(gr.Slider):
    """A slider whose value is checked by `Request`, whose message names the field."""

    is_template = True

    def preprocess(self, payload: float) -> float:
        return payload
    from typing import Callable, Literal, Sequence, Any, TYPE_CHECKING
    from gradio.blocks import Block
    if TYPE_CHECKING:
        from gradio.components import Timer
        from gradio.components.base import Component


def build(loader: Loader, pair: Pair) -> gr.Blocks:
    """The page for one pair, which may still be loading."""
    gr.set_static_paths([PLOTLY])
    runs = Runs()

    def race(
        instruction: str,
        context: str,
        draft_length: float,
        max_new_tokens: float,
        temperature: float,
        top_p: float,
        top_k: float,
        seed: float,
        kv_cache: KVCacheKind,
        visitor: gr.Request,
    ) -> Iterator[str]:
        """Races both decoders; streams the lines that draw the page."""
        try:
            request = _request(
                instruction, context, draft_length, max_new_tokens, temperature, top_p, top_k,
                seed, kv_cache,
            )  # fmt: skip
            dolly = loader.dolly()
            run = dolly.start(request)
            with runs.of(visitor, run):
                yield from stream(run, Feed(dolly.tokenizer.piece))
        except UserError as error:
            raise gr.Error(html.escape(str(error)), print_exception=False) from None

    def trace(
        instruction: str,
        context: str = "",
        draft_length: int = 4,
        max_new_tokens: int = 100,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        seed: int = 0,
        kv_cache: str = "paged",
    ) -> dict[str, Any]:
        """Races both decoders; returns the trace@1 when they are done."""
        try:
            request = _request(
                instruction, context, draft_length, max_new_tokens, temperature, top_p, top_k,
                seed, kv_cache,
            )  # fmt: skip
            run = loader.dolly().start(request)
            for _ in run:
                pass
            return run.trace().to_dict()
        except UserError as error:
            raise gr.Error(html.escape(str(error)), print_exception=False) from None

    def settle() -> Iterator[str]:
        """The status now, and once more when the models are there."""
        yield loader.status()
        try:
            loader.dolly()
        except Exception:  # noqa: S110 - the status tells
            pass
        yield loader.status()

    with gr.Blocks(title="Dolly, twice", analytics_enabled=False) as page:
        with gr.Row(elem_id="top"):
            gr.HTML(
                "<h1>Dolly, twice</h1><p>The same answer: token by token, and drafted and "
                "verified. OpenVINO on this CPU.</p>",
                elem_id="title",
            )
            status = gr.HTML(
                loader.status(),
                html_template='<span class="dot"></span><span data-testid="status"></span>',
                js_on_load="const say = () => { element.querySelector('[data-testid]').textContent"
                " = props.value; element.dataset.ready = props.value.startsWith('Ready'); };"
                " say(); watch('value', say);",
                elem_id="status",
            )
        with gr.Row(elem_id="ask"):
            instruction = gr.Textbox(
                label="Instruction",
                placeholder="What should Dolly do?",
                value=pair.chips[0].instruction,
                lines=2,
                max_lines=8,
                scale=6,
                elem_id="instruction",
            )
            run_button = gr.Button("Run both", variant="primary", scale=1, elem_id="run")
            stop_button = gr.Button("Stop", scale=1, elem_id="stop")
        with gr.Row(elem_id="chips"):
            chips = [gr.Button(chip.label, size="sm", min_width=60) for chip in pair.chips]
        gr.HTML(f'<p class="pair-note">{html.escape(pair.note)}</p>')
        with gr.Accordion("Context and settings", open=False, elem_id="settings"):
            context = gr.Textbox(label="Context", lines=2, max_lines=8, elem_id="context")
            with gr.Row():
                draft_length = Range(1, MAX_DRAFT_LENGTH, 4, step=1, label="Draft length")
                new_tokens = Range(1, MAX_NEW_TOKENS, 100, step=1, label="New tokens")
                temperature = Range(0, 2, 0, step=0.05, label="Temperature (0 is greedy)")
            with gr.Row():
                top_p = Range(0.05, 1, 1, step=0.01, label="Top-p")
                top_k = Range(0, 200, 0, step=1, label="Top-k (0 keeps all)")
                seed = gr.Number(0, label="Seed", precision=0)
                kv_cache = gr.Dropdown(list(get_args(KVCacheKind)), value="paged", label="KV cache")
        stage = gr.HTML(
            "",
            html_template=stage_template(PLOTLY),
            css_template=STAGE_STYLE,
            js_on_load=STAGE_SCRIPT,
            elem_id="stage",
        )

        inputs = [
            instruction, context, draft_length, new_tokens, temperature, top_p, top_k, seed,
            kv_cache,
        ]  # fmt: skip
        gr.on(
            run_button.click,
            race,
            inputs,
            stage,
            api_name="race",
            concurrency_limit=1,
            concurrency_id="model",
            trigger_mode="once",
            show_progress="minimal",
        )
        stop_button.click(runs.stop, queue=False, api_visibility="private")
        for button, chip in zip(chips, pair.chips, strict=True):
            chosen = json.dumps([chip.instruction, chip.context])
            button.click(
                None, None, [instruction, context], js=f"() => {chosen}", api_visibility="private"
            )
        page.load(settle, None, status, api_visibility="private", show_progress="hidden")
        gr.api(trace, api_name="trace", concurrency_limit=1, concurrency_id="model")
        gr.api(loader.status, api_name="status")
    page.queue(max_size=_WAITING)
    return page


def launch_options() -> dict[str, Any]:
    """What Gradio 6 wants at launch: theme, style, and pages made by Python alone."""
    fonts = ["Inter", "system-ui", "sans-serif"]
    return {
        "theme": gr.themes.Base(primary_hue="blue", neutral_hue="slate", font=fonts),
        "css_paths": [_ASSETS / "page.css"],
        "ssr_mode": False,
        "footer_links": ["api"],
    }


def _request(
    instruction: str,
    context: str,
    draft_length: float,
    max_new_tokens: float,
    temperature: float,
    top_p: float,
    top_k: float,
    seed: float,
    kv_cache: KVCacheKind,
) -> Request:
    """The controls' values as a request; JSON does not tell 4 from 4.0."""
    return Request(
        instruction,
        context,
        max_new_tokens=_whole(max_new_tokens),
        temperature=temperature,
        top_p=top_p,
        top_k=_whole(top_k),
        seed=_whole(seed),
        draft_length=_whole(draft_length),
        kv_cache=kv_cache,
    )


def _whole(value: float) -> int:
    whole = isinstance(value, float) and value.is_integer()
    return int(value) if whole else value  # type: ignore[return-value]  # Request says what is wrong