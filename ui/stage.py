"""The stage: verdict, panes, legend and plot, drawn by a script from the lines of a feed.

The template is constant. Whatever a run says reaches the page through `textContent` only.
"""

from __future__ import annotations

from pathlib import Path

_ASSETS = Path(__file__).resolve().parents[1] / "assets"

STAGE_SCRIPT = (_ASSETS / "stage.js").read_text(encoding="utf-8")
STAGE_STYLE = (_ASSETS / "stage.css").read_text(encoding="utf-8")


def stage_template(plotly: Path) -> str:
    """The stage's markup, knowing where the plotting library is served."""
    markup = (_ASSETS / "stage.html").read_text(encoding="utf-8")
    return markup.replace("PLOTLY_URL", f"gradio_api/file={plotly}")
