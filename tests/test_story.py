"""The first screen, and a race on it: at every width, in both themes."""

import re
from itertools import pairwise

import pytest
from playwright.sync_api import expect

from tests.served import (
    HEIGHTS,
    SCREENS,
    box,
    fit,
    open_settings,
    opened,
    publish,
    run,
    shown,
    status_says,
    to_the_end,
    wait_for_end,
    wrapped,
)
from tests.traces import VARIED, ran
from ui.component import encode
from ui.run.recorded import recorded
from ui.run.repeated import TIMES
from ui.verdict import verdict


@pytest.fixture(scope="module")
def page(browser, server):
    """A page that the tests below use one after the other."""
    with opened(browser, server[1]) as page:
        to_the_end(page)
        yield page


@pytest.fixture(scope="module", params=SCREENS, ids=lambda screen: f"{screen[0]}-{screen[1]}")
def screen(request, page):
    """That page with the recorded run, and the width of the screen that it is on."""
    width, theme = request.param
    page.keyboard.press("Escape")  # closes a card
    publish(page, "verdict", encode(TOLD))
    fit(page, width, HEIGHTS[width], theme)
    page.evaluate("scrollTo(0, 0)")
    return page, width


TOLD = verdict(recorded(), "Recorded")
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


LABELS = "h1, #header button, #ask button, .replay button, #details [role=tab], #verdict dd"
SQUARES = """() => ["autoregressive", "speculative"].map((lane) => {
    const last = [...document.querySelectorAll(`[data-lane=${lane}] .tok[data-end] > span`)].at(-1);
    const { width, height, backgroundColor } = getComputedStyle(last, "::before");
    return [width, height, backgroundColor];
})"""


def test_labels_are_on_one_line_and_the_end_token_is_one_square_on_both_sides(screen):
    page, _ = screen
    assert wrapped(page, LABELS) == []
    one, other = page.evaluate(SQUARES)
    assert one == other == ["8px", "8px", other[2]]


HEADER = """() => {
    const [header, dot] = ["header", ".dot"].map((e) => document.querySelector(`#header ${e}`));
    const of = (state, waiting) => {
        header.dataset.state = state;
        header.toggleAttribute("data-waiting", waiting);
        const { content } = getComputedStyle(header.querySelector(".now"), "::after");
        const line = header.querySelector("[data-testid=status]").checkVisibility();
        return [getComputedStyle(dot).backgroundColor, line, content];
    };
    return [of("ended", false), of("ready", true), of("ready", false)];
}"""  # of a lost race, in the queue, and ready, as at first


def test_the_header_is_green_for_no_loss_and_says_ready_to_nobody_in_the_queue(screen):
    lost, queued, ready = screen[0].evaluate(HEADER)
    assert len({lost[0], queued[0], ready[0]}) == 3
    assert queued[1:] == [False, '"In the queue"']
    assert lost[1:] == ready[1:] == [True, "none"]


LONG = {
    "why": "The machine was busy: 13 of 180 steps took over three times the median of their kind, "
    "and count as that. Main reason: verification is too expensive (v = 1.11 target steps beyond "
    "the step itself).",
    "again": "Measure again",
    "alarm": "memory",
    "signature": "Memory is short.",
    "signature_text": "Of the keys and values, 95 of 100 MB are used. Ask for less.",
}


ENDS = (  # how a race may end: changed fields of its verdict
    {
        "why": "The machine was busy: 13 of 180 steps took over three times the median of their "
        "kind, and count as that.",
        "again": "Measure again",
    },
    {
        "mark": "differs",
        "same": "Not identical.",
        "same_text": "The first 42 tokens agree, then the texts differ. With these settings "
        "rounding depends on the number of tokens in a forward pass; the default settings avoid "
        "that.",
    },
    {
        "headline": "1.0× — slower",
        "headline_label": "per decoded token; 12 runs of this race: 0.87× to 11.31×",
        "rates": "1234 → 2345",
        "counts": "of tested drafts accepted (123 of 156); 62 % of all drafts; 40 of 140 rounds "
        "without a draft",
    },
)


def test_the_verdict_moves_nothing_however_a_race_ends_and_says_all_of_it(screen):
    page, width = screen
    tops = "['.panes', '#timeline'].map((part) => document.querySelector(part).offsetTop)"
    before = page.evaluate(tops)
    for end in ENDS:
        publish(page, "verdict", encode(TOLD | end))
        assert page.evaluate(tops) == before, end
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
    page.mouse.move(0, 0)
    for width, theme in SCREENS:
        fit(page, width, HEIGHTS[width], theme)
        page.evaluate("scrollTo(0, 0)")
        assert box(page, ".pane .text >> nth=0")[1] < HEIGHTS[width] - 90
        expect(page.locator("#verdict .figures dd").nth(1)).to_be_in_viewport(ratio=1)
        expect(page.locator("#stop")).to_be_disabled()


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


def test_a_race_is_repeated_in_the_background_and_stopped(page, dolly):
    run(page)
    wait_for_end(page)
    answers = shown(page, "speculative")
    dolly.pause = 0.002
    page.get_by_role("tab", name="Timings").click()
    page.get_by_role("button", name="Run ten times").click()
    races = page.locator("#races")
    races.get_by_text("95 % interval").wait_for()
    expect(page.locator("#stop")).to_be_enabled()
    assert shown(page, "speculative") == answers
    page.get_by_test_id("stop").click()
    status_says(page, "Stopped")
    expect(races).to_contain_text("of 10 races: ", use_inner_text=True)
    assert len(dolly.started) < 1 + TIMES


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
        with page.expect_download() as download:
            page.locator("#trace").click()
        assert download.value.path().read_text("utf-8") == dolly.last_trace().to_json()
