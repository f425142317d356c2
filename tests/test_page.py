"""The page, in a real browser against the real app."""

import json
import re
from contextlib import closing
from io import BytesIO
from itertools import combinations

import gradio as gr
import httpx
import numpy as np
import pytest
from gradio_client import Client
from PIL import Image
from playwright.sync_api import TimeoutError, expect

from pipeline.decoding.events import FinishReason
from pipeline.errors import UserError
from pipeline.models.pairs import DEFAULT_PAIR, PAIRS
from pipeline.request import FORM_FIELDS, Request
from pipeline.trace.reader import parse_trace
from tests.fake_dolly import FakeDolly, action, loader_of
from tests.served import (
    HOSTILE,
    LANES,
    MARKUP,
    PLAIN,
    assert_shows,
    next_frame,
    open_settings,
    opened,
    run,
    shown,
    status_says,
    to_the_end,
    wait_for_end,
)
from tests.traces import VARIED
from ui.component import ASSETS, encode
from ui.page import Page
from ui.run.recorded import recorded
from ui.run.turn import Turn
from ui.session import Session
from ui.tabs.registry import TABS
from ui.verdict import verdict

BAD_INPUT = [  # field of the API, value, how its one line begins: one of each kind
    ("instruction", " \n ", "instruction: “” —"),
    ("instruction", "x" * 1_000_000, f"instruction: “{'x' * 60}…” — shorten its 1,000,000 char"),
    ("instruction", "a\0b", r"instruction: “a\x00b” —"),
    ("instruction", "a\ud800b", r"instruction: “a\ud800b” —"),
    ("draft_length", 9, "draft length: 9 —"),
    ("draft_length", "four", "draft length: “four” —"),
    ("temperature", float("nan"), "temperature: nan —"),
    ("kv_cache", "magic", "KV cache: “magic” —"),
]


def read(file):
    return file.read_text(encoding="utf-8")


def test_a_run_streams_in_both_panes(page, dolly):
    dolly.pause = 0.03
    page.evaluate(  # whatever is shown, however seldom a busy machine lets anybody look
        """window.counts = {};
        for (const pane of document.querySelectorAll(".pane")) {
            const seen = (counts[pane.dataset.lane] = []);
            const count = () => seen.push(pane.querySelectorAll(".tok").length);
            new MutationObserver(count).observe(pane, { childList: true, subtree: true });
        }"""
    )
    run(page)
    wait_for_end(page)
    counts = page.evaluate("window.counts")
    assert all(len(set(counts[lane])) >= 5 for lane in LANES), counts
    assert_shows(page, dolly.last_trace())


def test_a_run_gives_every_output_a_value_with_every_update():
    """Without one, Gradio makes the component anew, and the models wait for that."""
    form = Request("Say something", max_new_tokens=12, draft_length=4).form.values()
    updates = list(Page(loader_of(FakeDolly(PLAIN))).answer(None, Session(), "race", *form))
    assert len(updates) > 1
    for values in updates:
        assert [type(value) for value in values] == [str, str]


def test_to_load_another_pair_leaves_the_status_to_the_run_under_way():
    dolly, session = FakeDolly(PLAIN, pause=0.01), Session()
    served_page = Page(loader_of(dolly))

    def changed():
        updates = served_page.change_pair(session, "fake", "model")
        values = (value for update in updates for value in update.values())
        return {view for value in values if isinstance(value, str) for view in json.loads(value)}

    with closing(session.race(dolly, Request("Say something"), Turn())) as race:
        next(race)
        assert changed() == {"notice", "costs"}
    session.stop()
    assert changed() == {"notice", "costs", "header"}
    session.close()


@pytest.mark.parametrize("activity", ["race", "experiment"])
def test_what_went_wrong_with_a_pair_meanwhile_is_still_said_at_the_end(monkeypatch, activity):
    loader, session = loader_of(FakeDolly(PLAIN, pause=0.01)), Session()
    served_page = Page(loader)
    form = ["race", *Request("Say something", max_new_tokens=5).form.values()]
    what = action("measure-request") if activity == "experiment" else None
    work = served_page.answer(what, session, *form)

    def broken(*_):
        raise UserError("model", "far/away", "is not on the hub")

    monkeypatch.setattr(loader, "change", broken)
    while not session.busy:  # it begins once the pair is there
        next(work)
    list(served_page.change_pair(session, "fake", "model"))
    *_, (views, _) = work
    assert not session.busy
    assert "far/away" in json.loads(views)["notice"]["value"]
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


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_without_colour_no_two_kinds_of_token_look_alike(page, theme):
    if theme == "dark":
        page.get_by_label("Switch between light and dark").click()
    page.add_style_tag(content="html { filter: grayscale(1) }")
    # Shown where there are any.
    page.evaluate("document.querySelector('.legend .remembered').hidden = false")
    kinds = page.get_by_test_id("legend").locator(".tok").all()  # the same word in each
    assert {kind.inner_text() for kind in kinds} == {"the"}
    pictures = {}
    for kind in kinds:
        shown = kind.locator("> span").screenshot(animations="disabled")  # a theme fades in
        picture = Image.open(BytesIO(shown)).convert("L")
        on_page = Image.new("L", (90, 45), 255 if theme == "light" else 0)
        on_page.paste(picture)
        pictures[kind.get_attribute("data-state")] = np.asarray(on_page, dtype=int)
    for one, other in combinations(pictures, 2):
        differs = abs(pictures[one] - pictures[other]) > 64
        assert differs.sum() > 40, (one, other)  # pixels: two underlines of a short word


@pytest.mark.parametrize("stop", ["button", "Escape"])
def test_stop_stops_the_run_and_the_next_one_works(page, dolly, stop):
    dolly.pause = 0.5  # so that it goes on for longer than a minute
    run(page)
    page.locator("[data-testid=pane-autoregressive] .text .tok").nth(3).wait_for()
    if stop == "button":
        page.get_by_test_id("stop").click()
    else:
        page.keyboard.press(stop)
    wait_for_end(page, "cancelled")
    status_says(page, "Stopped")
    expect(page.get_by_test_id("pane-autoregressive")).to_contain_text(
        "stopped", use_inner_text=True
    )
    stopped = dolly.last_trace()
    assert {lane.finish for lane in stopped.lanes.values()} == {FinishReason.CANCELLED}
    assert len(stopped.autoregressive.tokens) < 100
    assert_shows(page, stopped)

    dolly.pause = 0.0
    page.keyboard.press("Control+Enter")
    wait_for_end(page)
    assert len(shown(page, "autoregressive")) == 100


LATE = """late => {
    const sent = window.fetch;
    window.fetch = async (url, ...rest) => {
        if (String(url).endsWith("/cancel")) await new Promise((go) => setTimeout(go, late));
        return sent(url, ...rest);
    };
}"""


def test_a_cancellation_that_comes_late_does_not_end_the_next_run(page, dolly):
    """Gradio cancels whatever this visitor runs by then."""
    dolly.pause = 0.5
    run(page)
    page.locator("[data-testid=pane-autoregressive] .text .tok").nth(3).wait_for()
    page.evaluate(LATE, 1000)
    page.get_by_test_id("stop").click()
    wait_for_end(page, "cancelled")
    dolly.pause = 0.02  # so that it goes on for longer than a second
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
    assert_shows(page, dolly.last_trace())
    assert page.evaluate("window.hacked") is None
    expect(page.locator(".pane .text .tok > * > *, .token-card :is(img, script)")).to_have_count(0)
    assert dolly.last_trace().request["instruction"] == HOSTILE


def called(url, endpoint, **given):
    """The last event of a call and its data; by hand: clients refuse to send the worst."""
    request = Request("any", max_new_tokens=5)
    values = [*request.form.values(), "race"]
    for field, value in given.items():
        values[FORM_FIELDS.index(field)] = value
    called = f"{url}gradio_api/call/{endpoint}"
    headers = {"content-type": "application/json"}
    joined = httpx.post(called, content=json.dumps({"data": values}), headers=headers)
    *_, event, data = httpx.get(f"{called}/{joined.json()['event_id']}").text.split("\n")[:-2]
    return event.removeprefix("event: "), json.loads(data.removeprefix("data: "))


@pytest.mark.parametrize("endpoint", ["race", "trace"])
@pytest.mark.parametrize(("field", "value", "line"), BAD_INPUT)
def test_bad_input_gets_its_one_line_from_the_api(url, endpoint, field, value, line):
    event, data = called(url, endpoint, **{field: value})
    assert event == "error"
    assert data["error"].startswith(line)
    assert "\n" not in data["error"]
    assert called(url, endpoint)[0] == "complete"


def test_bad_input_gets_its_one_line_on_the_page(page):
    """Where the page lets it be entered: its sliders do not leave their range."""
    notice = page.get_by_test_id("notice")
    open_settings(page)
    seed = page.get_by_label("Seed", exact=True)
    seed.fill("-1")
    page.get_by_test_id("run").click()
    notice.filter(has_text="seed: -1 —").wait_for()
    seed.fill("0")
    run(page)
    wait_for_end(page)
    expect(notice).to_have_text("")


def test_a_failing_engine_is_one_line_and_the_next_run_works(page, dolly):
    dolly.fails = True
    run(page)
    notice = page.get_by_test_id("notice")
    notice.filter(has_text="RuntimeError the <b>engine</b> broke").wait_for()
    dolly.fails = False
    run(page)
    wait_for_end(page)
    expect(notice).to_have_text("")


def test_the_first_screen_holds_the_verdict_both_answers_and_the_legend(browser, url):
    with opened(browser, url, width=1366, height=768) as page:
        to_the_end(page)
        bottom = 0
        for name in ("verdict", "pane-autoregressive", "pane-speculative", "legend"):
            box = page.get_by_test_id(name).bounding_box()
            bottom = max(bottom, box["y"] + box["height"])
        assert page.get_by_test_id("pane-speculative").bounding_box()["y"] <= 400
        assert bottom <= 768


CUT_OFF = """() => [...document.querySelectorAll(".gradio-container *")].filter((e) => {
    if (!e.textContent.trim() || e.clientWidth < 3 || !e.checkVisibility()) return false;
    const { overflowX, overflowY } = getComputedStyle(e);
    const cut = (overflow, held, shown) => /hidden|clip/.test(overflow) && held > shown + 2;
    return cut(overflowX, e.scrollWidth, e.clientWidth)
        || cut(overflowY, e.scrollHeight, e.clientHeight);
}).map((e) => e.outerHTML.slice(0, 160))"""


def test_at_twice_the_size_nothing_is_cut_off_or_scrolls_sideways(browser, url):
    """What a zoom of 200 % leaves of 1366 x 768 pixels."""
    with opened(browser, url, 683, height=384) as page:
        double = {"width": 683, "height": 384, "deviceScaleFactor": 2, "mobile": False}
        devtools = page.context.new_cdp_session(page)
        devtools.send("Emulation.setDeviceMetricsOverride", double)
        page.wait_for_function("devicePixelRatio === 2 && innerWidth === 683")
        run(page)
        wait_for_end(page)
        open_settings(page)
        page.locator("#tour-open").click()
        page.get_by_test_id("tour").wait_for()
        for tab in TABS:
            page.get_by_role("tab", name=tab.title, exact=True).click()
            page.locator(f"#{tab.name}").wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= 683
            # The question above the answers is that in the box, and may be longer than a line.
            assert [e for e in page.evaluate(CUT_OFF) if 'class="asked"' not in e] == []


def test_the_first_replay_answers_the_question_in_the_box():
    assert recorded().request["instruction"] == PAIRS[DEFAULT_PAIR].examples[0].instruction


def test_a_race_shows_a_verdict_and_plots_before_it_ends():
    session = Session()
    race = session.race(FakeDolly(PLAIN, pause=0.01), Request("any", max_new_tokens=100), Turn())
    begun, *between, _ = race
    assert [changes for changes in between if changes.verdict and changes.views]
    assert begun.verdict["headline"] == "Racing…"
    session.close()


SHIFTS = """window.shifts = [];
const parts = "#header, #ask, #verdict, #lanes, #timeline, #details"; // not Gradio's loading screen
new PerformanceObserver((list) => {
    for (const { value, sources } of list.getEntries()) {
        const nodes = sources.map(({ node }) => (node?.closest ? node : node?.parentElement));
        if (!nodes.some((node) => node?.closest(parts))) continue;
        shifts.push([value, ...nodes.map((node) => node?.className)]);
    }
}).observe({ type: "layout-shift", buffered: %s });"""


def assert_still(page):
    """By Chromium's layout shift score, of which less than 0.1 passes as good."""
    shifts = page.evaluate("shifts")
    assert sum(score for score, *_ in shifts) < 0.02, shifts


SCREENS = [(360, 740), (768, 1024), (1366, 768)]  # pixels


@pytest.mark.parametrize(("width", "height"), SCREENS)
def test_nothing_jumps_while_a_race_goes_on(browser, url, dolly, width, height):
    dolly.texts, dolly.pause = VARIED, 0.02  # a text that does not repeat itself
    with opened(browser, url, width=width, height=height) as page:
        to_the_end(page)
        page.locator("#tour-open").click()
        page.get_by_test_id("tour").get_by_label("autoregressive").check()
        page.locator("#verdict .guessed", has_text="Your guess").wait_for()
        next_frame(page)
        page.evaluate(SHIFTS % "false")
        run(page)
        page.get_by_test_id("verdict").get_by_text("so far").first.wait_for()
        page.get_by_test_id("verdict").get_by_text("just now").first.wait_for()
        wait_for_end(page, skip=False)
        page.locator("#verdict .guessed", has_text="you guessed").wait_for()
        assert_still(page)


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


@pytest.mark.parametrize("end", range(len(ENDS)))
@pytest.mark.parametrize(("width", "height"), SCREENS)
def test_nothing_jumps_however_a_race_ends(browser, url, width, height, end):
    with opened(browser, url, width, height=height) as page:
        to_the_end(page)
        next_frame(page)
        page.evaluate(SHIFTS % "false")
        told = verdict(recorded())
        for value in (told | ENDS[end], told):
            page.evaluate(
                """(value) => document.dispatchEvent(
                    new CustomEvent("update", { detail: { name: "verdict", value } }))""",
                encode(value),
            )
            label = page.locator("#verdict dt[data-field=headline_label]")
            expect(label).to_have_text(value["headline_label"])
            next_frame(page)
        assert_still(page)


@pytest.mark.parametrize(("width", "height"), SCREENS)
def test_nothing_jumps_after_the_first_paint(browser, url, width, height):
    with closing(browser.new_page()) as page:
        page.set_viewport_size({"width": width, "height": height})
        page.add_init_script(SHIFTS % "true")
        page.goto(url)
        status_says(page, "Ready")
        wait_for_end(page, "stop")
        page.locator("#timeline .plot .bars").first.wait_for()
        next_frame(page)
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
