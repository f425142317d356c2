"""A component whose markup is constant and whose text a script fills in.

Gradio evaluates what it puts into a template, so nothing is put there: a value is JSON that the
component's script reads and shows by `textContent`. Text from users and models is never markup.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gradio as gr

ASSETS = Path(__file__).resolve().parents[1] / "assets"


class Live(gr.HTML):  # type: ignore[misc]
    """`assets/NAME.html`, brought to life by a script of `assets/`.

    Args:
        name: of the markup; also the element's id.
        script: of the behaviour; `fields` fills each `[data-field]` from an object.
        value: what it shows at first.
        props: constants for the script, read as `props.NAME`.
    """

    def __init__(self, name: str, script: str, value: str = "", **props: Any) -> None:
        super().__init__(
            value,
            html_template=(ASSETS / f"{name}.html").read_text(encoding="utf-8"),
            js_on_load=(ASSETS / f"{script}.js").read_text(encoding="utf-8"),
            apply_default_css=False,
            elem_id=name,
            **props,
        )

    def postprocess(self, value: str | None) -> str | None:
        """As it is: Gradio would warn of a `<script>` in it, but it is never markup."""
        return value


def fields(**values: object) -> str:
    """The value of a component that `fields.js` fills. `state` styles the whole."""
    return json.dumps(values)
