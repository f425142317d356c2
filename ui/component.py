"""Components whose markup is constant and whose text a script fills in.

Gradio evaluates what it puts into a template, so nothing is put there: a value is JSON that the
component's script reads and shows by `textContent`. Text from users and models is never markup.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

ASSETS = Path(__file__).resolve().parents[1] / "assets"
# Of an event that shows no progress. Gradio keeps the progress of every output that an event of the
# page once had, and updates each of them whenever any event tells of its own, so there are none.
QUIET: dict[str, Any] = {
    "show_progress": "hidden",
    "show_progress_on": [],
    "api_visibility": "private",
}


def live(
    name: str,
    script: str | Sequence[str],
    value: str = "",
    folder: str | None = None,
    **props: Any,
) -> gr.HTML:
    """The component whose assets lie in `assets/NAME/`.

    A function and not a subclass: Gradio writes a `.pyi` beside the source of every subclass.

    Args:
        name: of the component; also the element's id.
        script: of the behaviour, a file of `assets/` without `.js`; `view/fields` fills each
            `[data-field]` from an object. Several are one script in several files.
        value: what it shows at first. What it is to show later goes through an `unseen` one.
        folder: of `assets/` where the markup `NAME.html` lies, if not in one of its own.
        props: constants for the script, read as `props.NAME`.
    """
    scripts = (script,) if isinstance(script, str) else script
    markup = (ASSETS / (folder or name) / f"{name}.html").read_text(encoding="utf-8")
    return _html(name, markup, scripts, value, view=name, **props)


def unseen(name: str) -> gr.HTML:
    """An output of events; `assets/view/NAME.js` hands on to the views what it holds."""
    return _html(name, "<i></i>", (f"view/{name}",), "", visible="hidden")


def _html(name: str, markup: str, scripts: Sequence[str], value: str, **props: Any) -> gr.HTML:
    files = (ASSETS / f"{script}.js" for script in ("view/view", *scripts))
    return gr.HTML(
        value,
        html_template=markup,
        js_on_load="\n".join(file.read_text(encoding="utf-8") for file in files),
        apply_default_css=False,
        elem_id=name,
        **props,
    )


def encode(value: object) -> str:
    """JSON without a `<`, so that it is no markup wherever it ends up."""
    return json.dumps(value).replace("<", "\\u003c")


def fields(**values: object) -> str:
    """The value of a component that `fields.js` fills. `state` styles the whole."""
    return encode(values)
