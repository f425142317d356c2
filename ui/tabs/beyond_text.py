"""Images instead of text: both methods draw handwritten digits, pixel by pixel."""

from __future__ import annotations

from functools import cache

from pipeline.digits import DIGITS, PIXELS, Digits, Drawing, Sheet
from pipeline.engine import local
from ui.component import encode
from ui.run.action import Action, Asked, StagedDisplay, Work
from ui.tabs.tab import Tab


def value(drawing: Drawing) -> str:
    """The value of the tab's view."""
    sheets = {
        lane: {"levels": sheet.levels, "origins": sheet.origins, "figures": _figures(sheet)}
        for lane, sheet in drawing.sheets.items()
    }
    return encode({"sheets": sheets, "claim": _claim(drawing)})


def _figures(sheet: Sheet) -> str:
    pixels = len(sheet.levels)
    if not pixels:
        return ""
    each = f"{1e3 * sheet.seconds / pixels:.2f} ms a pixel"
    if sheet.drafting:
        each += f", {100 * sheet.drafting / sheet.seconds:.0f} % of it for drafts"
    return f"{pixels} pixels, {sheet.passes} target passes, {each}"


def _claim(drawing: Drawing) -> str:
    """What came out: whether the images agree, and what speculation saved."""
    agreeing, fast = drawing.agreeing, drawing.fast
    if not drawing.complete:
        return ""
    same = f"Identical: all {agreeing} pixels agree."
    if drawing.request.temperature:
        same = "Same distribution: with sampling the images differ by chance."
        if agreeing == len(DIGITS) * PIXELS:
            same = "Same distribution, and the same images."
    elif agreeing < len(DIGITS) * PIXELS:
        same = f"Not identical: the first {agreeing} pixels agree, then the images differ."
    rate, speedup = fast.acceptance_rate, drawing.speedup
    words = [same, f"{len(fast.levels) / fast.passes:.1f} pixels per target pass"]
    if rate is not None:
        words[-1] += f", {100 * rate:.0f} % of tested drafts accepted"
    if speedup is not None:
        words[-1] += f"; {speedup:.2f}× as fast as autoregression, measured just now"
    return " ".join(words) + "."


@cache
def _digits() -> Digits:
    """The image models, which a process compiles once."""
    return Digits()


def _draw(asked: Asked) -> tuple[Work, StagedDisplay]:
    local(asked.engine, "Draw ten digits")
    display = StagedDisplay(
        asked,
        "Drawing digits",
        "Digits drawn",
        lambda drawing, _: {TAB.name: value(drawing)} if drawing else {},
        lambda drawing: drawing.complete,
    )
    return _digits().draw(asked.request), display


TAB = Tab(
    name="digits",
    title="Beyond text",
    template="digits/digits.html",
    scripts=("digits/digits",),
    actions=(Action(name="draw-digits", label="Draw ten digits", start=_draw),),
)
