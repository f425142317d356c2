"""Images instead of text: both methods draw handwritten digits, pixel by pixel."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

from pipeline.digits import DIGITS, PIXELS, Digits, Drawing, Sheet
from pipeline.engine import local
from pipeline.request import DEFAULTS
from ui.component import encode
from ui.run.action import Action, Asked, StagedDisplay, Work
from ui.tabs.tab import Tab

# Where the form has what it begins with: images that look written, and the fastest by their card.
_TEMPERATURE, _DRAFT_LENGTH = 1.0, 1


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
    time = f"{1e3 * sheet.seconds:.0f} ms"
    if sheet.drafting:
        time += f", {100 * sheet.drafting / sheet.seconds:.0f} % of it for drafts"
    return f"{pixels} pixels, {sheet.passes} target passes, {time}"


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
    words = f"{same} {drawing.slow.passes} → {fast.passes} target passes"
    if speedup is not None:
        words += f", {speedup:.2f}× as fast, measured just now"
    if rate is not None:
        words += f"; {100 * rate:.0f} % of tested drafts accepted"
    return f"{words}."


@cache
def _digits() -> Digits:
    """The image models, which a process compiles once."""
    return Digits()


def _draw(asked: Asked, greedy: bool = False) -> tuple[Work, StagedDisplay]:
    local(asked.engine, "Draw ten digits")
    request = asked.request
    begins = {**DEFAULTS, **asked.engine.pair.settings}
    if greedy or request.temperature == begins["temperature"]:
        request = replace(request, temperature=0.0 if greedy else _TEMPERATURE)
    if request.draft_length == begins["draft_length"]:
        request = replace(request, draft_length=_DRAFT_LENGTH)
    display = StagedDisplay(
        asked,
        "Drawing digits",
        "Digits drawn",
        lambda drawing, _: {TAB.name: value(drawing)} if drawing else {},
        lambda drawing: drawing.complete,
    )
    return _digits().draw(request), display


TAB = Tab(
    name="digits",
    title="Beyond text",
    template="digits/digits.html",
    scripts=("digits/digits",),
    actions=(
        Action(name="draw-digits", label="Draw ten digits", start=_draw),
        Action(
            name="draw-greedily",
            label="Draw them greedily",
            start=partial(_draw, greedy=True),
        ),
    ),
)
