"""The page, in a real browser against the real app."""

import json
import re
from contextlib import closing
from io import BytesIO
from itertools import combinations

import gradio as gr
import numpy as np
import pytest
from gradio_client import Client
from PIL import Image
from playwright.sync_api import TimeoutError, expect

from pipeline.decoding.events import FinishReason
from pipeline.models.pairs import DEFAULT_PAIR, PAIRS
from pipeline.request import Request
from pipeline.trace.reader import parse_trace
from tests.fake_dolly import FakeDolly, action, asked, loader_of
from tests.served import (
    HEIGHTS,
    HOSTILE,
    LANES,
    MARKUP,
    PLAIN,
    assert_shows,
    begun,
    fit,
    next_frame,
    open_settings,
    run,
    shown,
    status_says,
    to_the_end,
    wait_for_end,
)
from tests.traces import VARIED
from ui import tour
from ui.component import ASSETS, encode
from ui.page import Page
from ui.run.recorded import recorded
from ui.run.turn import Turn
from ui.session import Session
from ui.tabs.how import how
from ui.tabs.registry import RUN_TABS


def read(file):
    return file.read_text(encoding="utf-8")


def test_a_run_streams_in_both_panes_and_is_replayed_slowly_when_asked(page, dolly):
    dolly.pause = 0.01
    to_the_end(page)  # of what is shown before
    page.evaluate(  # whatever is shown, however seldom a busy machine lets anybody look
        """window.counts = {};
        for (const pane of document.querySelectorAll(".pane")) {
            const seen = (counts[pane.dataset.lane] = []);
            const count = () => seen.push(pane.querySelectorAll(".tok").length);
            new MutationObserver(count).observe(pane, { childList: true, subtree: true });
        }"""
    )
    run(page)
    wait_for_end(page, skip=False)
    assert_shows(page, dolly.last_trace())
    counts = page.evaluate("window.counts")
    assert all(len(set(counts[lane])) >= 5 for lane in LANES), counts
    begun = counts["autoregressive"]
    begun = begun[begun.index(0) :]  # the run before is cleared away
    assert begun == sorted(begun)  # and the race is not replayed by itself
    slowed = page.get_by_test_id("slowed")
    expect(slowed).to_have_text("")
    page.get_by_role("button", name="Replay slowly").click()
    expect(slowed).to_have_text("In slow motion")
    wait_for_end(page)


def test_marks_tell_where_each_token_came_from(page, dolly):
    run(page)
    wait_for_end(page)
    lane = dolly.last_trace().speculative
    tokens = page.eval_on_selector_all(
        "[data-testid=pane-speculative] .text .tok",
        "tokens => tokens.map((token) => [token.dataset.state, Number(token.dataset.step)])",
    )
    made = [(state, step) for state, step in tokens if state not in ("rejected", "untested")]
    assert made == [(token.origin, token.step) for token in lane.tokens]
    assert {state for state, _ in made} >= {"accepted", "resampled", "bonus"}
    refused = [state for state, _ in tokens if state in ("rejected", "untested")]
    assert refused.count("rejected") == lane.tested - lane.accepted
    assert len(refused) == lane.drafted - lane.accepted

    rejected = page.locator(".tok[data-state=rejected]").first
    expect(rejected).to_be_hidden()
    page.get_by_label("show rejected drafts").check()
    expect(rejected).to_be_visible()


def test_a_run_gives_every_output_a_value_with_every_update():
    """Without one, Gradio makes the component anew, and the models wait for that."""
    form = Request("Say something", max_new_tokens=12, draft_length=4).form.values()
    updates = list(Page(loader_of(FakeDolly(PLAIN))).answer(None, Session(), "race", *form))
    assert len(updates) > 1
    for values in updates:
        assert [type(value) for value in values] == [str, str]


@pytest.mark.parametrize("activity", ["race", "experiment"])
def test_to_load_another_pair_leaves_the_status_to_the_run_under_way(activity):
    dolly, session, request = FakeDolly(PLAIN, pause=0.01), Session(), Request("Say something")
    served_page = Page(loader_of(dolly))

    def changed():
        updates = served_page.change_pair(session, "fake", "model")
        values = (value for update in updates for value in update.values())
        return {view for value in values if isinstance(value, str) for view in json.loads(value)}

    if activity == "race":
        work = session.race(dolly, request, Turn())
    else:
        work = session.act(action("measure-request"), asked(dolly, request), Turn())
    with closing(work):
        next(work)
        assert changed() == {"notice", "costs"}
    assert session.stop().notice is None  # what went wrong with a pair meanwhile is still there
    assert changed() == {"notice", "costs", "header"}
    session.close()


def test_every_id_that_a_style_sheet_names_is_on_the_page():
    """Else what it styles has lost its style, and no other test fails."""
    page = Page(loader_of(FakeDolly(PLAIN)))
    there = {block.elem_id for block in page.blocks.blocks.values()}
    there |= {
        id for file in ASSETS.glob("*/*.html") for id in re.findall(r' id="([\w-]+)"', read(file))
    }
    selectors = [re.sub(r"\{[^{}]*\}", "", read(file)) for file in ASSETS.glob("*/*.css")]
    named = {id for text in selectors for id in re.findall(r"#([a-z][\w-]*)", text)}
    assert named <= there
    assert {"examples", "details"} <= named


def test_gradios_queue_has_the_pace_and_the_length_that_the_page_uses():
    """They are Gradio's own affair: setting what it no longer reads would do nothing."""
    own = getattr(gr.Blocks().queue()._queue, "sleep_when_free", None)
    assert own is not None, "Gradio's queue has another name for its pace, which Page sets"
    queue = Page(loader_of(FakeDolly(PLAIN))).blocks._queue
    assert own <= queue.sleep_when_free == 0.05
    assert len(queue) == 0, "the chat API counts who waits in Gradio's queue"


def test_a_page_at_rest_draws_nothing(browser, url):
    """Gradio's own clock would draw sixty frames a second, which the models pay."""
    with closing(browser.new_page()) as page:
        page.add_init_script(
            """const ask = window.requestAnimationFrame;
            window.requestAnimationFrame = (draw) => {
                window.asked = performance.now();
                return ask(draw);
            };"""
        )
        page.goto(url)
        status_says(page, "Ready")
        calm = "performance.now() - window.asked > 1000"
        try:
            page.wait_for_function(calm, polling=100)  # both in milliseconds
        except TimeoutError:
            pytest.fail("stopLoadingScreen() of page.js no longer finds the frames of Gradio's")


def test_without_colour_no_two_kinds_of_token_look_alike(page):
    page.add_style_tag(content="html { filter: grayscale(1) }")
    # Shown where there are any.
    page.evaluate("document.querySelector('.legend .remembered').hidden = false")
    kinds = page.get_by_test_id("legend").locator(".tok").all()  # the same word in each
    assert {kind.inner_text() for kind in kinds} == {"the"}
    for theme, background in {"light": 255, "dark": 0}.items():
        fit(page, 1280, 900, theme)
        pictures = {}
        for kind in kinds:
            shown = kind.locator("> span").screenshot(animations="disabled")  # a theme fades in
            on_page = Image.new("L", (90, 45), background)
            on_page.paste(Image.open(BytesIO(shown)).convert("L"))
            pictures[kind.get_attribute("data-state")] = np.asarray(on_page, dtype=int)
        for one, other in combinations(pictures, 2):
            differs = abs(pictures[one] - pictures[other]) > 64
            # pixels: two underlines of a short word
            assert differs.sum() > 40, (theme, one, other)


def test_stop_stops_the_run_by_button_or_key_and_the_next_one_works(page, dolly):
    stop = page.get_by_test_id("stop")
    for press in (stop.click, lambda: page.keyboard.press("Escape")):
        expect(stop).to_be_disabled()
        dolly.pause = 0.1  # so that it goes on for many seconds
        run(page)
        expect(stop).to_be_enabled()
        begun(page)
        press()
        wait_for_end(page, "cancelled")
        status_says(page, "Stopped")
        expect(page.get_by_test_id("pane-autoregressive")).to_contain_text(
            "stopped", use_inner_text=True
        )
        stopped = dolly.last_trace()
        assert {lane.finish for lane in stopped.lanes.values()} == {FinishReason.CANCELLED}
        assert len(stopped.autoregressive.tokens) < 100
        assert_shows(page, stopped)
    mark = '<div class="wrap"><span class="error">Error</span></div>'  # Gradio's, of a failed event
    page.evaluate(
        "mark => document.querySelector('#notice').insertAdjacentHTML('beforeend', mark)", mark
    )
    next_frame(page)
    expect(stop).to_be_disabled()

    dolly.pause = 0.0
    page.keyboard.press("Control+Enter")
    wait_for_end(page)
    assert len(shown(page, "autoregressive")) == 100


def test_a_cancellation_that_comes_late_does_not_end_the_next_run(page, dolly):
    """Gradio cancels whatever this visitor runs by then."""
    dolly.pause = 0.1
    run(page)
    begun(page)
    page.evaluate(
        """() => {
            const sent = window.fetch;
            window.fetch = async (url, ...rest) => {
                if (String(url).endsWith("/cancel")) await new Promise((go) => setTimeout(go, 500));
                return sent(url, ...rest);
            };
        }"""
    )
    page.get_by_test_id("stop").click()
    wait_for_end(page, "cancelled")
    dolly.pause = 0.01  # so that it goes on for longer than that
    run(page)
    wait_for_end(page)
    assert len(shown(page, "autoregressive")) == 100


def test_markup_stays_text(page, dolly):
    dolly.texts = [MARKUP[i % len(MARKUP)] for i in range(len(PLAIN))]
    run(page, HOSTILE)
    wait_for_end(page)
    page.get_by_label("show rejected drafts").check()
    page.locator("[data-testid=pane-speculative] .text").focus()
    for _ in range(20):
        page.keyboard.press("ArrowRight")  # each token's card tells its text
    trace = dolly.last_trace()
    assert_shows(page, trace)
    expect(page.locator(".pane .text .tok > * > *, .token-card :is(img, script)")).to_have_count(0)
    assert trace.request["instruction"] == HOSTILE

    show_tab(page, RUN_TABS["how"])
    told = how(trace)
    page.wait_for_function("document.querySelector('.how').dataset.state === 'token'")
    assert page.locator(".how del[data-field=drafted]").text_content() == told["drafted"]
    assert page.locator(".how [data-field=what]").text_content() == told["what"]
    expect(page.locator(".how [data-table=candidates] tbody tr")).to_have_count(5)
    expect(page.locator(".how [data-table=paper] tbody tr")).to_have_count(2)
    show_tab(page, RUN_TABS["steps"])
    page.locator("[data-plot=cost] summary").click()
    expect(page.locator("#details :is(td, .how) :is(img, script)")).to_have_count(0)

    page.locator("#tour-open").click()
    panel = page.get_by_test_id("tour")
    for stop in tour.stops(trace)[1:]:
        panel.get_by_role("button", name="Next", exact=True).click()
        expect(panel.locator(".what")).to_have_text(stop.text)
    expect(panel.locator(":is(.what, h2, .task) > *")).to_have_count(0)
    assert page.evaluate("window.hacked") is None


def test_what_cannot_be_run_is_one_line_on_the_page_and_the_next_run_works(page, dolly):
    notice = page.get_by_test_id("notice")
    to_the_end(page)
    page.get_by_role("button", name="To the start").click()
    run(page, " ", begins=False)
    expect(notice).to_have_text("Write a question or an instruction first.")
    assert page.get_by_test_id("scrubber").input_value() == "0"  # the replay is where it was
    open_settings(page)
    seed = page.get_by_label("Seed", exact=True)  # the sliders do not leave their range
    seed.fill("-1")
    run(page, begins=False)
    notice.filter(has_text="seed: -1 —").wait_for()
    seed.fill("0")
    dolly.fails = True
    run(page)
    notice.filter(has_text="RuntimeError the <b>engine</b> broke").wait_for()
    dolly.fails = False
    run(page)
    wait_for_end(page)
    expect(notice).to_have_text("")


def show_tab(page, tab):
    page.get_by_role("tab", name=tab.title, exact=True).click()
    page.locator(f"#{tab.name}").wait_for()


def test_the_first_replay_answers_the_question_in_the_box():
    assert recorded().request["instruction"] == PAIRS[DEFAULT_PAIR].examples[0].instruction


SHIFTS = """window.shifts = [];
window.loading = true;
const parts = "#header, #ask, #verdict, #lanes, #timeline, #details";
const leaving = ".loading[class*=svelte]"; // Gradio's loading screen, which gives way to the page
new PerformanceObserver((list) => {
    for (const { value, sources } of list.getEntries()) {
        const nodes = sources.map(({ node }) => (node?.closest ? node : node?.parentElement));
        if (!nodes.some((node) => node?.closest(parts))) continue;
        // A node that has left the document is null.
        if (nodes.some((node) => (node ? node.matches(leaving) : loading))) continue;
        shifts.push([value, ...nodes.map((node) => node?.className)]);
    }
}).observe({ type: "layout-shift", buffered: true });"""


def assert_still(page):
    """By Chromium's layout shift score, of which less than 0.1 passes as good."""
    next_frame(page)
    shifts = page.evaluate("loading = false, shifts")
    assert sum(score for score, *_ in shifts) < 0.02, shifts


@pytest.mark.parametrize(
    ("width", "theme"), [(320, "dark"), (390, "light"), (1024, "dark"), (1366, "light")]
)
def test_nothing_jumps_after_the_first_paint_nor_in_a_race(browser, url, dolly, width, theme):
    dolly.texts, dolly.pause = VARIED, 0.01  # a text that does not repeat itself
    with closing(browser.new_page()) as page:
        page.set_viewport_size({"width": width, "height": HEIGHTS[width]})
        page.emulate_media(color_scheme=theme)
        page.add_init_script(SHIFTS)
        page.goto(url)
        status_says(page, "Ready")
        wait_for_end(page, "stop")
        page.locator("#timeline .plot .bars").first.wait_for()
        assert_still(page)

        page.locator("#tour-open").click()
        page.get_by_test_id("tour").get_by_label("autoregressive").check()
        page.locator("#verdict .guessed", has_text="Your guess").wait_for()
        next_frame(page)
        page.evaluate("shifts.length = 0")  # the tour may move what it is beside
        run(page)
        page.get_by_test_id("verdict").get_by_text("so far").first.wait_for()
        page.get_by_test_id("verdict").get_by_text("just now").first.wait_for()
        wait_for_end(page, skip=False)
        page.locator("#verdict .guessed", has_text="you guessed").wait_for()
        assert_still(page)


@pytest.mark.parametrize("preferred", ["light", "dark"])
def test_the_chosen_theme_outlives_a_reload(browser, url, preferred):
    with closing(browser.new_page()) as page:
        page.emulate_media(color_scheme=preferred)
        page.goto(url)
        page.get_by_test_id("run").wait_for()
        dark = "document.body.classList.contains('dark')"
        assert page.evaluate(dark) == (preferred == "dark")
        page.get_by_label("Switch between light and dark").click()
        page.reload()
        page.get_by_test_id("run").wait_for()
        page.wait_for_function(f"{dark} === {encode(preferred == 'light')}")


def test_nothing_is_fetched_from_elsewhere(browser, url):
    with closing(browser.new_page()) as page:
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(url)
        status_says(page, "Ready")
        run(page)
        page.locator(".plot .bars").first.wait_for()
    assert all(url.startswith((url, "data:", "blob:")) for url in asked)


def test_the_api_streams_and_its_trace_is_the_whole_record(url, dolly):
    dolly.pause = 0.01
    with closing(Client(url, verbose=False)) as client:
        job = client.submit("Say something", api_name="/race")
        *streamed, last = map(json.loads, job)
        trace = parse_trace(json.dumps(last["trace"]))
        assert len(streamed) > 3
        for name, lane in trace.lanes.items():
            tokens = [
                token["text"]
                for part in streamed
                for update in part["updates"]
                if update["lane"] == name
                for token in update["tokens"]
            ]
            assert "".join(tokens) == lane.text
        whole = client.predict("Say something", max_new_tokens=7, api_name="/trace")
        assert len(whole["lanes"]["speculative"]["tokens"]) == 7
        assert client.predict(api_name="/status")["ready"] is True
