"""The whole page after a race, with all tabs at once: at every width, in both themes."""

from itertools import pairwise

import pytest
from playwright.sync_api import expect

from tests.served import (
    HEIGHTS,
    LANES,
    PLAIN,
    SCREENS,
    box,
    fit,
    open_settings,
    opened,
    run,
    status_says,
    wait_for_end,
    wrapped,
)
from tests.test_axe import violations
from ui.tabs.experiments import VIEWS
from ui.tabs.registry import TABS

ASKED = 'Say "it"'
OPEN = """() => {
    const parts = "[data-plot] details, [data-experiment=widths]";
    for (const each of document.querySelectorAll(parts)) each.open = true;
}"""
WATCHED = (
    *("timeline", "lanes", "cost", "positions", "rejections", "reliability", "others"),
    "study_widths",
)
KEPT = ", ".join(f"[data-plot={name}]" for name in WATCHED)
STYLE = f"""[role=tabpanel] {{ display: block !important }}
[data-plot]:not({KEPT}) .plot {{ display: none }}"""  # drawing them takes most of the time
DRAWN = """() => [...document.querySelectorAll(".plot")].every((plot) =>
    !plot.offsetWidth || plot.querySelector(".main-svg")?.clientWidth === plot.offsetWidth
)"""


@pytest.fixture(scope="module")
def whole(browser, server):
    """That page, with open settings, tables and roofline, drawn digits, and Run pressed in vain."""
    fake, url = server
    fake.reset()
    fake.texts = ["i" * 400, *PLAIN[1:]]  # a word that fits no line
    with opened(browser, url) as page:
        page.emulate_media(reduced_motion="reduce")  # a theme fades in
        open_settings(page)
        run(page, ASKED)
        wait_for_end(page)
        page.get_by_label("show rejected drafts").check()
        for tab in TABS:
            page.get_by_role("tab", name=tab.title, exact=True).click()
            page.locator(f"#{tab.name}").wait_for()
        page.add_style_tag(content=STYLE)
        page.get_by_role("button", name="Draw ten digits").click()
        status_says(page, "Digits drawn")
        page.evaluate(OPEN)
        run(page, " ", begins=False)
        page.get_by_test_id("notice").get_by_text("Write").wait_for()
        yield page


@pytest.fixture(scope="module", params=SCREENS, ids=lambda screen: f"{screen[0]}-{screen[1]}")
def screen(request, whole):
    """That page, and the width of the screen that it is on."""
    width, theme = request.param
    fit(whole, width, HEIGHTS[width], theme)
    whole.wait_for_function(DRAWN)
    return whole, width


CUT_OFF = """() => [...document.querySelectorAll(".gradio-container *")].filter((e) => {
    if (!e.textContent.trim() || e.clientWidth < 3 || !e.checkVisibility()) return false;
    const { overflowX, overflowY } = getComputedStyle(e);
    const cut = (overflow, held, shown) => /hidden|clip/.test(overflow) && held > shown + 2;
    return cut(overflowX, e.scrollWidth, e.clientWidth)
        || cut(overflowY, e.scrollHeight, e.clientHeight);
}).map((e) => e.outerHTML.slice(0, 160))"""


def assert_fits(page, width):
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # The question above the answers is that in the box, and may be longer than a line.
    assert [e for e in page.evaluate(CUT_OFF) if 'class="asked"' not in e] == []


def test_nothing_is_cut_off_or_scrolls_sideways_and_on_a_phone_lanes_are_stacked(screen):
    page, width = screen
    assert_fits(page, width)
    for lane in ("[data-testid=pane-{}]", "[data-testid=digits] [data-lane={}]"):
        one, other = (box(page, lane.format(name)) for name in LANES)
        assert (one[3] <= other[1]) == (width <= 768)


def test_axe_finds_nothing_serious(screen):
    page, width = screen
    if width in (1366, 320):  # it takes its time
        assert violations(page) == {}


PROSE = """() => [...document.querySelectorAll(".gradio-container p")].filter((e) =>
    e.textContent.trim() && e.checkVisibility() && !/start|left/.test(getComputedStyle(e).textAlign)
).map((e) => e.textContent)"""


def test_prose_is_left_aligned_and_labels_are_on_one_line(screen):
    page, _ = screen
    assert page.evaluate(PROSE) == []
    assert wrapped(page, "#details button, #exports button, #settings h3") == []


def test_run_without_a_question_is_a_sentence_and_nothing_to_stop(screen):
    page, width = screen
    notice = page.get_by_test_id("notice")
    expect(notice).to_have_text("Write a question or an instruction first.")
    left, _, right, _ = box(page, "[data-testid=notice]")
    assert 0 <= left < right <= width
    expect(page.locator("#stop")).to_be_disabled()


COLOURS = """() => [".key", ".images"].map((part) => Object.fromEntries(
    [...document.querySelectorAll(`.digits ${part} [data-origin]`)].map((e) => {
        const { backgroundColor, borderBottom } = getComputedStyle(e);
        return [e.dataset.origin, `${backgroundColor} ${borderBottom}`];
    })
))"""


def test_digits_have_the_colours_of_their_legend_and_say_passes_and_time(screen):
    page, _ = screen
    legend, drawn = page.evaluate(COLOURS)
    assert drawn == legend
    assert len({*legend.values()}) == len(legend) == 4
    expect(page.locator(".digits .claim")).to_contain_text("640 → ")
    for figures in page.locator(".digits .figures").all():
        expect(figures).to_contain_text(" target passes, ")
        expect(figures).to_contain_text(" ms")


BOXES = """es => es.map((e) => e.getBoundingClientRect()).map((e) => [e.left, e.top, e.bottom])"""


def test_the_studies_are_an_index_of_questions_in_one_column(screen):
    page, _ = screen
    summaries = page.locator(".experiment > summary")
    expect(summaries).to_contain_text([view.experiment.question for view in VIEWS])
    boxes = summaries.evaluate_all(BOXES)
    assert len({left for left, _, _ in boxes}) == 1
    assert all(upper[2] <= lower[1] for upper, lower in pairwise(boxes))
    assert sum(bottom - top for _, top, bottom in boxes) < 90 * len(VIEWS)


PLOT = "document.querySelector('[data-plot={}] .plot')"
OVERLAPS = """() => {
    const frame = (e) => e?.getBoundingClientRect() ?? { width: 0 };
    const hit = (a, b) => a.width && b.width && a.left < b.right - 1 && b.left < a.right - 1
        && a.top < b.bottom - 1 && b.top < a.bottom - 1;
    return [...document.querySelectorAll("[data-plot]:has(.main-svg)")].filter((plot) => {
        const of = (parts) => [...plot.querySelectorAll(parts)].map(frame);
        const [legend] = of(".legend"), areas = of(".nsewdrag");
        const top = Math.min(...areas.map((area) => area.top)); // a longer bar is cut off there
        const bars = of(".barlayer .point path").map((bar) => {
            const { left, right, width, bottom } = bar;
            return { left, right, width, bottom, top: Math.max(bar.top, top) };
        });
        return legend && [...bars, ...of(".xtick text, .note")].some((e) => hit(legend, e));
    }).map((plot) => plot.dataset.plot);
}"""
SMALL = """() => [...document.querySelectorAll(".barlayer .bartext")].filter((e) => {
    const size = parseFloat(getComputedStyle(e).fontSize) * Math.hypot(e.getCTM().a, e.getCTM().b);
    return e.checkVisibility({ visibilityProperty: true }) && size < 10.9;
}).map((e) => e.textContent)"""
SHOWN = """(names) => names.filter((name) => {
    const { left, right, height } = document.querySelector(name).getBoundingClientRect();
    return !(height && 0 <= left && right <= innerWidth);
})"""


def test_no_legend_runs_over_bars_or_notes_and_no_number_of_a_bar_is_small(screen):
    page, _ = screen
    assert page.evaluate(OVERLAPS) == []
    assert page.evaluate(SMALL) == []


def test_whoever_asks_why_is_answered(screen):
    """The doctor, reliability, whether it would pay, the roofline, and repeated races."""
    page, _ = screen
    parts = [f"[data-plot={name}] .plot" for name in WATCHED]
    assert page.evaluate(SHOWN, [*parts, ".any-sizes", "#repeat", "#measure-costs"]) == []
    expect(page.locator("[data-plot=rejections] .note")).to_contain_text("What to try: ")
    expect(page.locator("[data-plot=others] .note")).to_contain_text("All predicted")
    expect(page.locator(".any-sizes .predicted")).to_contain_text("× predicted")
    roofline = page.evaluate(
        f"{PLOT.format('study_widths')}.data.map(({{ name, x }}) => [name, x])"
    )
    assert [x for _, x in roofline] == [[*range(1, 10)]] * 4
    assert [name.split(",")[0] for name, _ in roofline] == [
        *("Measured", "As many single tokens"),
        *("Reading from memory", "Computing"),
    ]


def test_a_round_is_lit_with_its_rejected_drafts_wherever_one_points(screen):
    page, _ = screen
    text, lit = page.locator("[data-testid=pane-speculative] .text"), page.locator(".tok.lit")
    rejected = text.locator(".tok[data-state=rejected]").nth(1)
    tokens = text.locator(f".tok[data-step='{rejected.get_attribute('data-step')}']")
    for token in (tokens.first, rejected):
        token.hover()
        page.locator("#timeline .round").wait_for()
        assert lit.count() == tokens.count() > 1
        page.mouse.move(0, 0)
        expect(lit).to_have_count(0)


def test_after_a_resize_no_legend_runs_over_bars_or_notes(whole):
    for width in (320, 1666, 320, 1324, 320, 690, 620):
        fit(whole, width, 768)
        whole.wait_for_function(DRAWN)
        assert whole.evaluate(OVERLAPS) == []


def test_at_twice_the_size_nothing_is_cut_off(whole):
    fit(whole, 683, 384)  # what a zoom of 200 % leaves of 1366 x 768 pixels
    double = {"width": 683, "height": 384, "deviceScaleFactor": 2, "mobile": False}
    whole.context.new_cdp_session(whole).send("Emulation.setDeviceMetricsOverride", double)
    whole.wait_for_function("devicePixelRatio === 2 && innerWidth === 683")
    assert_fits(whole, 683)
