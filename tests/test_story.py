"""The first screen, and a race on it: at every width, in both themes."""

import re
from itertools import pairwise

import pytest
from playwright.sync_api import expect

from tests.served import (
    fit,
    open_settings,
    opened,
    publish,
    run,
    shown,
    status_says,
    to_the_end,
    wait_for_end,
)
from tests.traces import VARIED, ran
from ui.component import encode
from ui.run.recorded import recorded
from ui.verdict import verdict

HEIGHTS = {1366: 768, 1024: 768, 390: 844, 320: 640}
SCREENS = [(width, theme) for width in HEIGHTS for theme in ("light", "dark")]


@pytest.fixture(scope="module")
def page(browser, server):
    """A page that the tests below use one after the other."""
    with opened(browser, server[1]) as page:
        to_the_end(page)
        yield page


@pytest.fixture(params=SCREENS, ids=lambda screen: f"{screen[0]}-{screen[1]}")
def screen(request, page):
    """That page, and the width of the screen that it is on."""
    width, theme = request.param
    fit(page, width, HEIGHTS[width], theme)
    return page, width


def box(page, selector):
    """Left, top, right and bottom."""
    found = page.locator(selector).bounding_box()
    return found["x"], found["y"], found["x"] + found["width"], found["y"] + found["height"]


UNASKED = ("K=", "of tested drafts", "0.05×", "milliseconds")


def test_the_first_screen_tells_what_happens_before_anybody_asks(screen):
    page, width = screen
    fast, slow = recorded().speculative, recorded().autoregressive
    expect(page.locator(".lead")).to_contain_text("Same text, fewer passes.")
    figures = page.locator("#verdict .figures dd")
    expect(figures.nth(1)).to_have_text(f"{len(slow.steps)} → {len(fast.steps)} passes")
    expect(page.locator("#verdict .more dl")).to_be_hidden()
    for button in ("#run", "#tour-open", "#share", "[data-do=slowly]"):
        expect(page.locator(button)).to_be_visible()
    expect(page.locator("#stop")).to_be_disabled()
    expect(page.get_by_test_id("model")).to_have_text(re.compile("134 million .* can be wrong$"))
    first = "\n".join(page.locator(f"#{part}").inner_text() for part in ("header", "ask", "lanes"))
    assert not [
        words for words in UNASKED if words in first + page.locator("#verdict").inner_text()
    ]
    parts = [".lead", "#instruction", "#verdict .figures", ".panes"]
    if width <= 768:
        parts += ["#verdict .words", "#timeline"]
        _, top, _, bottom = box(page, "#verdict .figures")
        assert bottom - top < 48  # one line
    boxes = [box(page, part) for part in parts]
    assert all(upper[3] <= lower[1] for upper, lower in pairwise(boxes))
    assert box(page, ".pane .text >> nth=0")[1] < HEIGHTS[width] - 90
    if width == 1366:
        assert box(page, ".panes")[1] <= 400
        assert box(page, "[data-testid=legend]")[3] <= 768
    assert page.evaluate("document.documentElement.scrollWidth") <= width


TALL = """() => [...document.querySelectorAll(
    "h1, #header button, #ask button, .replay button, #details [role=tab], #verdict dd"
)].filter((each) => {
    const range = document.createRange();
    range.selectNodeContents(each);
    const words = [...range.getClientRects()].filter(({ width }) => width > 1);
    const height = Math.max(...words.map((each) => each.bottom - words[0].top));
    return each.checkVisibility() && height > 1.9 * parseFloat(getComputedStyle(each).lineHeight);
}).map((each) => each.textContent)"""


def test_labels_are_on_one_line(screen):
    assert screen[0].evaluate(TALL) == []


LONG = {
    "why": "The machine was busy: 13 of 180 steps took over three times the median of their kind, "
    "and count as that. Main reason: verification is too expensive (v = 1.11 target steps beyond "
    "the step itself).",
    "again": "Measure again",
    "alarm": "memory",
    "signature": "Memory is short.",
    "signature_text": "Of the keys and values, 95 of 100 MB are used. Ask for less.",
}


def test_the_verdict_says_all_of_it(screen):
    page, width = screen
    publish(page, "verdict", encode(verdict(ran(VARIED)) | LONG))
    expect(page.locator("#verdict .watch")).to_be_visible()
    _, _, right, bottom = box(page, "#verdict .words")
    assert right <= width
    for last in (".again", ".watch > span"):
        assert box(page, f"#verdict {last}")[3] <= bottom
    held = page.locator("#verdict .words").evaluate("e => e.scrollHeight - e.clientHeight")
    assert held <= 0


def test_a_pinned_card_leaves_run_and_the_verdict_free(screen):
    page, _ = screen
    text = page.locator("[data-testid=pane-speculative] .text")
    tokens = text.locator(".tok[data-state=accepted] > span")
    for token in (tokens.last, tokens.nth(3)):
        token.evaluate("(e) => e.scrollIntoView({ block: 'end' })")  # of the window
        token.click()
        _, top, _, bottom = box(page, ".token-card.pinned")
        assert top >= box(page, "#verdict .figures")[3]
        assert bottom <= page.viewport_size["height"]


OVERLAPS = """() => {
    const frame = (e) => e?.getBoundingClientRect() ?? { width: 0 };
    const hit = (a, b) => a.width && b.width && a.left < b.right - 1 && b.left < a.right - 1
        && a.top < b.bottom - 1 && b.top < a.bottom - 1;
    return [...document.querySelectorAll("[data-plot]:has(.main-svg)")].filter((plot) => {
        const legend = frame(plot.querySelector(".legend"));
        const others = plot.querySelectorAll(".barlayer .point path, .xtick text, .note");
        return [...others].some((other) => hit(legend, frame(other)));
    }).map((plot) => plot.dataset.plot);
}"""


def test_a_disturbed_race_is_measured_again_at_a_click_or_key_which_closes_a_pinned_card(
    page, dolly
):
    again = page.get_by_test_id("verdict").get_by_role("button", name="Measure again")
    card = page.locator(".token-card")
    for press in (again.click, lambda: page.keyboard.press("Control+Enter")):
        publish(page, "verdict", encode(verdict(ran()) | LONG))
        page.locator("[data-testid=pane-speculative] .text .tok > span").first.click()
        expect(card).to_be_visible()
        page.evaluate("delete document.querySelector('.panes').dataset.source")
        press()
        page.locator(".panes[data-source=live]").wait_for()
        expect(card).to_be_hidden()
        wait_for_end(page)
    assert len(dolly.started) == 2


def test_after_a_resize_no_legend_runs_over_bars_or_notes(page):
    plots = page.locator("[data-plot=timeline] .plot, [data-plot=lanes] .plot")
    wide = "e => e.querySelector('.main-svg')?.clientWidth === e.offsetWidth"
    for width in (320, 1666, 1366, 320, 1324, 1024, 320, 690, 390, 620, 320):
        fit(page, width, 768)
        for plot in plots.all():
            plot.scroll_into_view_if_needed()
            plot.locator(".main-svg").first.wait_for()
            page.wait_for_function(wide, arg=plot.element_handle())
        assert page.evaluate(OVERLAPS) == []


def test_settings_are_grouped_and_what_differs_is_marked(page):
    marked = "e => getComputedStyle(e, '::after').content"
    label = page.locator("#settings > button > span").first
    assert label.evaluate(marked) == "none"
    open_settings(page)
    assert page.locator("#settings h3").all_inner_texts() == [
        *("Drafting", "Sampling", "Answer and cache"),
    ]
    page.get_by_label("number input for Temperature").fill("1")
    page.wait_for_function("document.querySelector('#marks').textContent.includes('temperature')")
    assert label.evaluate(marked) == '"1 changed"'
    infos = page.locator("#settings [data-testid=block-info]").all()
    assert [each.inner_text() for each in infos if each.evaluate(marked) != "none"] == [
        "Temperature"
    ]
    for width, theme in SCREENS:
        fit(page, width, HEIGHTS[width], theme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_reload_keeps_question_and_result_and_offers_the_tour_no_second_time(browser, url, dolly):
    with opened(browser, url) as page:
        offer = page.locator("#tour-open")
        expect(offer).to_have_text(re.compile("Take the tour"), use_inner_text=True)
        run(page, "Why <b>so</b>?")
        wait_for_end(page)
        page.locator("#trace").wait_for()
        told = page.locator("#verdict .figures").inner_text()
        answers = shown(page, "speculative")
        page.reload()
        status_says(page, "Ready")
        wait_for_end(page)
        expect(offer).to_have_text("Tour", use_inner_text=True)
        expect(page.get_by_label("Instruction")).to_have_value("Why <b>so</b>?")
        assert shown(page, "speculative") == answers
        assert page.locator("#verdict .figures").inner_text() == told
        assert len(dolly.started) == 1
