"""Components with constant markup, whose text a module of JavaScript fills in.

Gradio evaluates values inside a template, so the templates contain none: a value is JSON, which the
component's module shows by `textContent`. Text from users and models is never markup.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import gradio as gr

from ui import modules
from ui.modules import ASSETS as ASSETS

# For an event that shows no progress. Gradio keeps the progress of each output of such an event,
# and updates all of them whenever any event reports its own, so there are none.
QUIET: dict[str, Any] = {
    "show_progress": "hidden",
    "show_progress_on": [],
    "api_visibility": "private",
}


def component(
    name: str,
    scripts: str | Sequence[str],
    value: str = "",
    markup: str | None = None,
    **props: Any,
) -> gr.HTML:
    """A component that shows its value, and later the values published under its name.

    A function and not a subclass: Gradio writes a `.pyi` beside the source of every subclass.

    Args:
        name: of the view; also the element's id.
        scripts: of the behaviour: modules of `assets/`, without `.js`, whose default exports are
            called with the `View` of `view/view.js`; `view/fields` fills each `[data-field]`
            and each `[data-table]`.
        value: what it shows at first. What it shows later goes through a `hidden` component.
        markup: without values; None takes `assets/NAME/NAME.html`.
        props: constants for the script, read as `props.NAME`.
    """
    scripts = (scripts,) if isinstance(scripts, str) else scripts
    return gr.HTML(
        value,
        html_template=asset(f"{name}/{name}.html") if markup is None else markup,
        js_on_load=modules.call(scripts, "{ element, props, watch }"),
        apply_default_css=False,
        elem_id=name,
        view=name,
        **props,
    )


def hidden(name: str) -> gr.HTML:
    """An output of events; `assets/view/NAME.js` hands its value on to the views."""
    return component(name, f"view/{name}", markup="<i></i>", visible="hidden")


def asset(path: str) -> str:
    """The text of a file of `assets/`."""
    return (ASSETS / path).read_text(encoding="utf-8")


def encode(value: object) -> str:
    """JSON without a `<`, so that it is never markup, wherever it is put."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def fields(**values: object) -> str:
    """The value of a component that `fields.js` fills. `state` is for its style."""
    return encode(values)
