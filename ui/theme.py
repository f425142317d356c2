"""Gradio's theme, in the colours of `page.css`. System fonts only: nothing is fetched."""

from __future__ import annotations

import gradio as gr

_SANS = ("Inter", "system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
_MONO = ("ui-monospace", "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", "monospace")
# Gradio's names of colours, and the CSS variables that define them in both themes.
_COLOURS = {
    "body_background_fill": "--bg",
    "body_text_color": "--ink",
    "body_text_color_subdued": "--mute",
    "block_background_fill": "--card",
    "block_border_color": "--line",
    "block_label_text_color": "--mute",
    "block_title_text_color": "--mute",
    "block_info_text_color": "--mute",
    "border_color_primary": "--line",
    "input_background_fill": "--bg",
    "input_border_color": "--line",
    "input_border_color_focus": "--brand",
    "button_primary_background_fill": "--brand",
    "button_primary_background_fill_hover": "--brand-strong",
    "button_primary_text_color": "--on-brand",
    "button_secondary_background_fill": "--soft",
    "button_secondary_background_fill_hover": "--line",
    "button_secondary_text_color": "--ink",
    "button_secondary_border_color": "--line",
    "slider_color": "--brand",
}


def _theme() -> gr.themes.Base:
    colours = {name: f"var({variable})" for name, variable in _COLOURS.items()}
    dark = {f"{name}_dark": colour for name, colour in colours.items()}
    theme = gr.themes.Base(
        font=_SANS, font_mono=_MONO, radius_size="lg", spacing_size="md", text_size="md"
    )
    return theme.set(**colours, **dark)


THEME = _theme()
