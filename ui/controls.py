"""The form: the request, and the pair that answers it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from pipeline.decoding.drafters import DRAFTERS
from pipeline.errors import UserError
from pipeline.models.choice import state
from pipeline.models.pairs import Pair
from pipeline.request import FORM_FIELDS, MAX_SEED, SETTINGS, Request, Setting
from ui import link
from ui.component import QUIET, encode
from ui.errors import logged_line
from ui.run.loader import Loader

_MODES = [
    ("Race: both at once", "race"),
    ("One after the other", "sequential"),
    ("Autoregressive only", "autoregressive"),
    ("Speculative only", "speculative"),
]
_RUN = {"race": "Run both", "sequential": "Run both"}  # else "Run"
_GROUPS = {  # of settings: a heading, and the effect of the group in a phrase
    "drafting": ("Drafting", "how guesses are made and checked: it changes the speed"),
    "sampling": ("Sampling", "how a token is chosen: it changes the text"),
    "answer": ("Answer and cache", "how long the answer may be, and what is kept of it"),
}
_MOST = "max_new_tokens"  # the field that a page limits further


class Controls:
    """Adds the form to the page being built.

    Args:
        loader: of the pair that is served.
        max_new_tokens: the limit on this page.

    Attributes:
        inputs: components that hold `mode`, and then the fields of `Request` in their order.
        marking: an event that marks the settings that differ from the beginning.
    """

    def __init__(self, loader: Loader, max_new_tokens: int) -> None:
        self.limits: dict[str, tuple[float, float]] = {
            name: setting.offered for name, setting in SETTINGS.items() if setting.offered
        }
        self.limits[_MOST] = 1, max_new_tokens
        with gr.Column(elem_id="ask"):
            with gr.Row(elem_id="prompt"):
                instruction = gr.Textbox(
                    loader.pair.examples[0].instruction,
                    label="Instruction",
                    show_label=False,
                    container=False,
                    placeholder="What should Dolly do?",
                    lines=2,
                    max_lines=8,
                    scale=8,
                    elem_id="instruction",
                )
                self.run = gr.Button("Run both", variant="primary", elem_id="run", min_width=104)
                self.stop = gr.Button("Stop", elem_id="stop", min_width=72)
            with gr.Row(elem_id="examples"):
                count = max(len(pair.examples) for pair in loader.pairs.values())
                self._examples = [_example(loader.pair, place) for place in range(count)]
            with gr.Row(elem_id="more"):
                with gr.Accordion("Context", open=False, elem_id="context"):
                    context = gr.Textbox(
                        show_label=False,
                        label="Context",
                        placeholder="A passage to answer from",
                        lines=4,
                        max_lines=12,
                        container=False,
                    )
                self._settings = gr.Accordion("Settings", open=False, elem_id="settings")
                with self._settings:
                    self.pair, self.load = _pair_menu(loader)
                    self.fields = {"instruction": instruction, "context": context}
                    for group, (heading, effect) in _GROUPS.items():
                        gr.HTML(f"<h3>{heading}</h3> {effect}", elem_classes="group", padding=False)
                        with gr.Row():
                            self._add_fields(group, loader.pair)
                            if group == "drafting":
                                mode = gr.Dropdown(
                                    _MODES,
                                    value=link.BLANK["mode"],
                                    label="Schedule",
                                    info="Whether both methods run, and when",
                                    min_width=150,
                                    elem_id="set-mode",
                                )
                    python = gr.Button("Copy as Python", elem_id="copy-python", min_width=0)
            share = gr.Button("Share", elem_id="copy-link")  # pressed by the header's
        self.fields = {name: self.fields[name] for name in FORM_FIELDS} | {"mode": mode}
        self.inputs = [self.fields[name] for name in ("mode", *FORM_FIELDS)]
        for button in self._examples:
            button.click(
                lambda label: self.filled(self._of_example(loader, label)),
                inputs=[button],
                outputs=self.inputs,
                queue=False,
                **QUIET,
            ).then(  # while a run goes on, this does nothing: the form alone is filled
                None,
                js="() => document.getElementById('run').click()",
                api_visibility="private",
            )
        self.fields["mode"].change(
            None,
            inputs=[self.fields["mode"]],
            outputs=[self.run],
            js=f"(mode) => ({encode(_RUN)})[mode] ?? 'Run'",
            api_visibility="private",
        )
        for script, button in {"copyLink": share, "copyPython": python}.items():
            button.click(**self._script(script, link.BLANK))
        self.run.click(**self._script("keepForm", link.BLANK))
        # The texts are no settings.
        self.marking = self._script("markChanged", self._begins(loader.pair), [*self.fields][2:])
        changes = [field.change for field in self.marking["inputs"]]
        gr.on([self.run.click, *changes], **self.marking)

    def _script(
        self, script: str, defaults: Mapping[str, Any], names: Sequence[str] = ()
    ) -> dict[str, Any]:
        """An event that calls a function of `page.js` with fields of the form, and what they are
        by default; without names, with all.
        """
        names = names or [*self.fields]
        return {
            "fn": None,
            "inputs": [self.fields[name] for name in names],
            "js": f"(...values) => window.{script}({encode(defaults)}, {encode(names)}, values)",
            "api_visibility": "private",
        }

    def _begins(self, pair: Pair, **asked: Any) -> dict[str, Any]:
        """What the form begins with, or has where an example asked for this."""
        form: dict[str, Any] = {**link.BLANK, **pair.settings, **asked}
        return form | {_MOST: min(form[_MOST], self._most)}

    def _of_example(self, loader: Loader, label: str) -> dict[str, Any]:
        """The values of the whole form, so that an example resets what the one before it set.
        Examples of all pairs are searched: the pair may have changed since the button was drawn.

        Raises:
            gr.Error: no pair has the example.
        """
        pairs = (loader.pair, *loader.pairs.values())
        found = [
            (pair, example) for pair in pairs for example in pair.examples if example.label == label
        ]
        if not found:  # of a call that is not the page's
            error = UserError("example", label, "choose one of the page's")
            raise gr.Error(logged_line(error), print_exception=False)
        pair, example = found[0]
        texts = {"instruction": example.instruction, "context": example.context}
        return self._begins(pair, **texts, **example.settings)

    @property
    def _most(self) -> float:
        """The most new tokens on this page."""
        return self.limits[_MOST][1]

    @property
    def of_pair(self) -> list[Any]:
        """The components that change with the pair."""
        return [self._settings, self.pair, self.fields["drafter"], *self._examples]

    def about(self, loader: Loader, drafter: str | None = None) -> dict[Any, Any]:
        """The updates that show the current pair and the state of all pairs. If none is loaded, the
        settings open with the pair that is suggested.

        Args:
            drafter: the form's, which is replaced if the pair does not have it.
        """
        choices, offered = loader.pair.drafters, loader.offer
        replaced = drafter is not None and drafter not in choices
        value = {"value": self._begins(loader.pair)["drafter"]} if replaced else {}
        return {
            self._settings: gr.Accordion(open=True) if loader.failure else gr.skip(),
            self.pair: gr.Dropdown(_pairs(loader), value=offered.name, info=offered.note),
            self.fields["drafter"]: gr.Dropdown(_titles(choices), **value),
            **{button: _example(loader.pair, i) for i, button in enumerate(self._examples)},
        }

    def filled(self, values: Mapping[str, Any]) -> dict[Any, Any]:
        """The updates that show `values`, by the names of `fields`."""
        return {self.fields[name]: value for name, value in values.items()}

    def request(self, *values: Any) -> Request:
        """The form's request; `values` are in the order of the form's fields.

        Raises:
            UserError: a value is outside its range.
        """
        instruction, context, *settings = values
        named = dict(zip(FORM_FIELDS[2:], map(_typed, settings), strict=True))
        request = Request(instruction or "", context or "", **named)
        if request.max_new_tokens > self._most:
            remedy = f"choose a whole number from 1 to {self._most:g}"
            raise UserError(SETTINGS[_MOST].name, request.max_new_tokens, remedy)
        return request

    def _add_fields(self, group: str, pair: Pair) -> None:
        """Adds a component for each of the group's fields, with what the page begins with."""
        begins = self._begins(pair)
        for name, setting in SETTINGS.items():
            if setting.group != group:
                continue
            about = {"value": begins[name], "label": setting.title, "elem_id": f"set-{name}"}
            about["info"] = f"{setting.help[:1].upper()}{setting.help[1:]}" or None
            if setting.choices:
                menu = _titles(pair.drafters) if name == "drafter" else _menu(setting)
                field = gr.Dropdown(menu, min_width=150, **about)
            elif setting.step:
                low, high = self.limits.get(name, (setting.low, setting.high))
                field = gr.Slider(low, high, step=setting.step, min_width=200, **about)
            elif name == "seed":
                field = _seed(about)
            else:
                if name == _MOST:
                    about["info"] = f"The longest answer; at most {self._most}"
                field = gr.Number(precision=0, min_width=110, **about)
            self.fields[name] = field


def _typed(value: Any) -> Any:
    """Converts a slider's 4.0 to 4, and a menu's empty text to None."""
    if value == "":
        return None
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _titles(drafters: Sequence[str]) -> list[tuple[str, str]]:
    """The entries of a menu."""
    return [(DRAFTERS[name].title, name) for name in drafters]


def _example(pair: Pair, place: int) -> gr.Button:
    there = place < len(pair.examples)
    label = pair.examples[place].label if there else ""
    return gr.Button(label, visible=there, size="sm", min_width=0)


def _pairs(loader: Loader) -> list[tuple[str, str]]:
    """The pairs that can be chosen, with the state of each."""
    states = {name: state(pair, loader.choice.store) for name, pair in loader.pairs.items()}
    if loader.failure:
        states[loader.pair.name] = "could not be loaded"
    return [(f"{pair.title}: {states[name]}", name) for name, pair in loader.pairs.items()]


def _menu(setting: Setting) -> list[tuple[str, Any]]:
    """The entries of a menu: the choices, then the numbers. An empty text stands for None."""
    choices = [(title, "" if value is None else value) for value, title in setting.choices.items()]
    numbers = range(int(setting.low), int(setting.high or -1) + 1)
    return choices + [(str(number), number) for number in numbers]


def _pair_menu(loader: Loader) -> tuple[gr.Dropdown, gr.Button]:
    """The menu of pairs, and the button that loads one."""
    with gr.Row(elem_id="pair"):
        pair = gr.Dropdown(
            _pairs(loader),
            value=loader.pair.name,
            label="Pair",
            info=loader.pair.note,
            interactive=not loader.fixed,
            scale=8,
        )
        return pair, gr.Button("Load", visible=not loader.fixed, elem_id="load", min_width=110)


def _seed(about: dict[str, Any]) -> gr.Number:
    """The seed, beside a button that changes it."""
    with gr.Row(elem_id="seed"):
        seed = gr.Number(precision=0, min_width=110, **about)
        dice = gr.Button("Random seed", elem_id="dice", min_width=0)
    dice.click(
        None,
        outputs=[seed],
        js=f"() => Math.floor(Math.random() * {MAX_SEED + 1})",
        api_visibility="private",
    )
    return seed
