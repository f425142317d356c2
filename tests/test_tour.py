"""The tour: its texts and questions, from a trace; its stops, in the browser."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import expect

from pipeline.trace.explanation import explanations
from pipeline.trace.metrics import LOST, yields
from tests.served import fit, opened, run, seek, status_says, to_the_end, wait_for_end
from tests.traces import STRANGE, alone, ran
from ui import tour
from ui.link import STOPS, read
from ui.run.recorded import recorded

SETTINGS = st.fixed_dictionaries(
    {
        "max_new_tokens": st.integers(1, 40),
        "temperature": st.sampled_from([0.0, 1.0]),
        "draft_length": st.sampled_from([1, 3, "auto"]),
        "seed": st.integers(0, 9),
    }
)


def stops_of(trace):
    return {stop.name: stop for stop in tour.stops(trace)}


@given(SETTINGS)
def test_a_perfect_draft_never_needs_more_passes_than_the_run(settings):
    fast = ran(**settings).speculative
    fewest, longest = tour.fewest_passes(fast), tour.longest_draft(fast)
    assert fewest <= len(fast.steps)
    assert (fewest - 1) * (longest + 1) < len(fast.tokens) <= fewest * (longest + 1)


@given(SETTINGS)
def test_the_answers_are_the_figures_of_the_run(settings):
    trace = ran(**settings)
    fast = trace.speculative
    asked = tour.questions(trace)
    if not fast.drafted:
        assert asked == []
        return
    passes, lost, most = (question.answer for question in asked)
    assert passes.startswith(f"{tour.fewest_passes(fast)}: ")
    assert passes.endswith(f"This run needed {len(fast.steps)}.")
    gone = sum(counts[name] for counts in yields(fast) for name in LOST)
    emitted = fast.drafted - gone
    assert lost.startswith(f"{gone} of {fast.drafted}: ")
    assert emitted == sum(token.origin in ("accepted", "remembered") for token in fast.tokens)
    assert most.startswith(f"{fast.block_efficiency:.2f}×")


@given(SETTINGS)
def test_every_stop_is_there_for_every_run_in_two_sentences(settings):
    trace = ran(**settings)
    for one in (trace, alone(trace, "autoregressive"), alone(trace, "speculative")):
        stops = tour.stops(one)
        assert [stop.name for stop in stops] == list(STOPS)
        for stop in stops:
            assert 1 <= len([part for part in stop.text.split(". ") if part]) <= 2


@given(SETTINGS)
def test_a_stop_asks_for_a_token_only_where_the_run_has_it(settings):
    trace = ran(**settings)
    for name, origin in (("rejection", "resampled"), ("bonus", "bonus")):
        stop = stops_of(trace)[name]
        steps = {token.step for token in trace.speculative.tokens if token.origin == origin}
        assert bool(stop.task) == bool(steps)
        assert stop.step in steps if steps else "Settings" in stop.text


def test_a_rejection_is_explained_as_on_the_card_of_its_token():
    for temperature in (0.0, 1.0):
        trace = ran(temperature=temperature, max_new_tokens=100)
        stop = stops_of(trace)["rejection"]
        explained = explanations(trace)["speculative"][stop.step]["tokens"][-1]
        for said in (explained["reason"], *explained["facts"].values()):
            assert said in stop.text


def test_strange_texts_are_no_markup_and_make_no_stop_long():
    trace = ran(STRANGE, temperature=1.0, max_new_tokens=60)
    assert "<" not in tour.value(trace, live=True)
    assert all(len(stop.text) < 500 for stop in tour.stops(trace))


@pytest.mark.parametrize("number", ["0", "8", "-1", "3.5", "three", "²", ""])
def test_a_link_to_no_stop_is_one_line(number):
    asked, line = read({"tour": number}, {})
    assert asked == {}
    assert line.startswith("link: “tour=")


def test_a_link_to_a_stop_fills_nothing():
    assert all(read({"tour": str(n + 1)}, {}) == ({}, "") for n in range(len(STOPS)))


# --- in the browser -------------------------------------------------------------------------------


def panel(page):
    return page.get_by_test_id("tour")


def press(page, name):
    panel(page).get_by_role("button", name=name, exact=True).click()


def begin(page):
    page.locator("#tour-open").click()
    panel(page).wait_for()


def at_stop(page, number):
    expect(panel(page).locator(".where")).to_have_text(f"Tour, {number} of {len(STOPS)}")


def is_done(page):
    expect(panel(page).locator(".done")).to_have_text("Done.")


def toured(page):
    return page.locator("[data-toured]")


def test_every_stop_is_shown_on_the_run_and_is_done(page, dolly):
    begin(page)
    expect(toured(page)).to_have_attribute("id", "run")
    expect(panel(page).locator(".guess")).to_be_visible()
    run(page)
    wait_for_end(page)
    is_done(page)
    trace = dolly.last_trace()
    for number, stop in enumerate(tour.stops(trace)[1:], 2):
        press(page, "Next")
        at_stop(page, number)
        announced = panel(page).locator("[aria-live=polite]")
        expect(announced.locator("h2")).to_have_text(stop.title)
        expect(announced.locator(".what")).to_have_text(stop.text)
        expect(panel(page).locator(".done[role=status]")).to_have_text("")
        expect(panel(page).locator(".guess")).to_be_hidden()
        if stop.task:
            press(page, "Show me")
            is_done(page)
            expect(toured(page).first).to_be_visible()
    press(page, "Next")
    asked = tour.questions(trace)
    expect(panel(page).locator("summary")).to_have_text([one.question for one in asked])
    for one, shown in zip(asked, panel(page).locator("details").all(), strict=True):
        shown.locator("summary").click()
        expect(shown.locator("p")).to_have_text(one.answer)
    press(page, "Finish")
    expect(panel(page)).to_be_hidden()
    expect(toured(page)).to_have_count(0)


def test_a_link_opens_a_stop_which_notices_what_the_visitor_does(browser, url, dolly):
    with opened(browser, f"{url}?tour=2") as page:
        at_stop(page, 2)
        to_the_end(page)
        toured(page).click()
        is_done(page)
        expect(page.locator(".token-card")).to_be_visible()
        press(page, "Next")
        at_stop(page, 3)
        expect(page).to_have_url(re.compile(r"\?tour=3$"))
        seek(page, tour.stops(recorded())[2].at_ms + 0.001)
        is_done(page)
        press(page, "Leave the tour")
        expect(page).not_to_have_url(re.compile("tour"))
        assert not dolly.started


def test_the_tour_goes_on_after_a_reload_until_it_is_left(page):
    begin(page)
    press(page, "Next")
    at_stop(page, 2)
    page.goto(page.url.partition("?")[0])
    page.wait_for_function("window.views?.header")  # else what is still fetched fails
    at_stop(page, 2)
    page.keyboard.press("Escape")
    expect(panel(page)).to_be_hidden()
    page.reload()
    status_says(page, "Ready")
    page.wait_for_function("window.views?.header")
    expect(panel(page)).to_be_hidden()


def test_the_tour_is_done_with_the_keyboard_alone_and_gives_the_focus_back(page):
    to_the_end(page)
    opener = page.locator("#tour-open")
    opener.focus()
    page.keyboard.press("Enter")
    expect(panel(page)).to_be_focused()
    for name in ("Next", "Show me"):
        panel(page).get_by_role("button", name=name).focus()
        page.keyboard.press("Enter")
        at_stop(page, 2)
    is_done(page)
    page.keyboard.press("Escape")
    expect(page.locator(".token-card")).to_be_hidden()
    expect(panel(page)).to_be_visible()
    page.keyboard.press("Escape")
    expect(panel(page)).to_be_hidden()
    expect(opener).to_be_focused()


def test_a_guess_is_told_beside_the_verdict_and_gone_with_the_next_race(page, dolly):
    guessed = page.locator("#verdict .guessed")
    begin(page)
    panel(page).get_by_label("autoregressive").check()
    panel(page).get_by_label("how many times as fast").fill("2.5")
    expect(guessed).to_have_text("Your guess: autoregressive by 2.5×. The next race measures it.")
    dolly.pause = 0.01
    run(page)
    wait_for_end(page)
    expect(guessed).to_contain_text("you guessed autoregressive by 2.5×, measured ")
    dolly.pause = 0.0
    run(page)
    expect(guessed).to_have_text("")
    wait_for_end(page)
    page.locator("#trace").wait_for()
    expect(guessed).to_have_text("")


NOTHING_HIDDEN = """() => {
    const { left, right, top, bottom } = document.querySelector(".tour").getBoundingClientRect();
    const about = document.querySelectorAll("[data-toured], .token-card:popover-open");
    return [...about].every((each) => {
        const box = each.getBoundingClientRect();
        return box.left >= right || box.right <= left || box.top >= bottom || box.bottom <= top;
    });
}"""


def test_the_tour_moves_nothing_and_hides_nothing_of_what_it_is_about(browser, url):
    top = "document.querySelector('.panes').getBoundingClientRect().top + scrollY"
    with opened(browser, url) as page:
        to_the_end(page)
        for width, height in ((360, 740), (768, 1024), (1366, 768)):
            fit(page, width, height)
            before = page.evaluate(top)
            begin(page)
            for number, stop in enumerate(tour.stops(recorded()), 1):
                at_stop(page, number)
                page.wait_for_function(NOTHING_HIDDEN)
                assert page.evaluate(top) == pytest.approx(before)
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                expect(panel(page)).to_be_in_viewport(ratio=1)
                if number > 1 and stop.task:
                    press(page, "Show me")
                    is_done(page)
                    page.wait_for_function(NOTHING_HIDDEN)  # a card follows a scroll
                press(page, "Next")
            press(page, "Finish")
