"""The panes: recorded, loaded and live runs, why a token is what it is, stepping through."""

import json
from concurrent.futures import Future
from contextlib import closing

import pytest
from playwright.sync_api import expect

from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.request import Request
from pipeline.trace.metrics import progress
from pipeline.trace.reader import parse_trace
from tests.fake_dolly import FakeDolly
from tests.served import (
    HOSTILE,
    PLAIN,
    assert_shows,
    fit,
    next_frame,
    open_settings,
    open_trace,
    opened,
    publish,
    run,
    seek,
    served,
    shown,
    status_says,
    to_the_end,
    wait_for_end,
)
from tests.traces import STRANGE, ran
from ui.run.recorded import recorded
from ui.run.transcript import Transcript


@pytest.fixture(scope="module")
def page(browser, server):
    """A page that most tests below use one after the other; at first with the recorded run."""
    with opened(browser, server[1]) as page:
        to_the_end(page)
        yield page


def badge_says(page, words):
    page.get_by_test_id("badge").filter(has_text=words).wait_for()


def moment(page):
    return page.get_by_test_id("scrubber").evaluate("scrubber => scrubber.valueAsNumber")


def slowed(page):
    return page.get_by_test_id("slowed").inner_text()


def pending(page, lane="speculative"):
    return page.locator(
        f"[data-testid=pane-{lane}] .text .tok[data-state=drafted]"
    ).all_inner_texts()


def pace(page, lane):
    return page.locator(f"[data-testid=pane-{lane}] .pace").inner_text()


def test_buttons_and_keys_step_and_space_plays(page):
    page.get_by_role("button", name="To the start").click()
    assert moment(page) == 0
    page.get_by_role("button", name="Step forward").click()
    first = moment(page)
    page.get_by_test_id("scrubber").focus()
    page.keyboard.press("ArrowRight")
    assert moment(page) > first > 0
    page.keyboard.press("ArrowLeft")
    assert moment(page) == pytest.approx(first)
    page.keyboard.press("End")
    assert moment(page) == pytest.approx(1000 * recorded().autoregressive.steps[-1].time_s)
    page.keyboard.press("Home")
    assert not shown(page, "speculative")

    page.locator("[data-testid=pane-speculative] .text").focus()
    page.keyboard.press("Space")
    page.locator("[data-playing=true]").wait_for()
    page.keyboard.press("Space")
    page.locator("[data-playing=false]").wait_for()
    page.keyboard.press("Space")
    wait_for_end(page, "stop", skip=False)
    assert_shows(page, recorded())


def test_a_page_that_missed_lines_waits_for_all_of_them(page):
    live = FakeDolly(PLAIN).start(Request("Say something", max_new_tokens=20))
    list(live)
    transcript = Transcript("id", live.trace())
    transcript.end(live.trace())
    lines = transcript.text.splitlines(keepends=True)
    publish(page, "lanes", "".join(lines[:6]))
    made = len(shown(page, "autoregressive"))
    assert made == sum(json.loads(line)["kind"] == "step" for line in lines[:6])
    publish(page, "lanes", "".join(lines[8:12]))
    assert len(shown(page, "autoregressive")) == made
    publish(page, "lanes", transcript.text)
    wait_for_end(page)
    assert_shows(page, live.trace())


def test_the_recorded_run_replays_badged_while_the_models_load(browser):
    trace, loading = recorded(), Future()
    with served(loading) as url, opened(browser, url, status="Loading") as page:
        badge_says(page, f"Recorded · {trace.environment['cpu']} · {trace.created[:10]}")
        page.locator("[data-playing=true]").wait_for()
        assert slowed(page) == "In slow motion"
        wait_for_end(page, "stop")
        assert slowed(page) == ""
        assert_shows(page, trace)
        verdict = page.get_by_test_id("verdict").inner_text()
        assert f"{trace.speedup:.1f}×" in verdict
        assert "Recorded" in verdict
        assert "just now" not in verdict

        run(page, begins=False)  # which waits for them
        expect(page.get_by_test_id("badge")).to_be_visible()
        loading.set_result(FakeDolly(PLAIN))
        page.locator(".panes[data-source=live]").wait_for()
        wait_for_end(page)
        expect(page.get_by_test_id("badge")).to_be_hidden()
        expect(page.get_by_test_id("verdict")).not_to_contain_text("Recorded", use_inner_text=True)


def test_a_replay_begins_when_it_is_in_sight(browser, url):
    with opened(browser, url, width=360, height=400) as page:
        wait_for_end(page, "stop")
        assert page.locator("[data-playing=true]").count() == 0
        page.get_by_test_id("pane-speculative").scroll_into_view_if_needed()
        page.locator("[data-playing=true]").wait_for()
        wait_for_end(page, "stop")
        page.evaluate("scrollTo(0, 0)")
        page.get_by_test_id("pane-speculative").scroll_into_view_if_needed()
        next_frame(page)
        assert page.locator("[data-playing=true]").count() == 0  # it plays once


def test_nothing_moves_by_itself_where_less_motion_is_wanted(browser, url, dolly):
    with closing(browser.new_page()) as page:
        page.emulate_media(reduced_motion="reduce")
        page.goto(url)
        page.get_by_test_id("scrubber").wait_for()
        assert_shows(page, recorded())
        assert page.locator("[data-playing=true]").count() == 0
        status_says(page, "Ready")
        page.evaluate(
            """() => {
                window.replays = 0;
                const button = document.querySelector("[data-do=play]");
                const count = () => (replays += button.dataset.playing === "true");
                new MutationObserver(count).observe(button, { attributeFilter: ["data-playing"] });
            }"""
        )
        dolly.pause = 0.004
        run(page)
        page.locator("#trace").wait_for()  # the last that a run brings
        assert_shows(page, dolly.last_trace())
        page.get_by_label("Switch between light and dark").click()
        moving = "document.getAnimations().map(({ effect: { target } }) => target.outerHTML)"
        assert page.evaluate(moving) == []
        assert page.evaluate("replays") == 0


def test_drafted_tokens_are_pending_before_they_are_verified(page, dolly):
    dolly.pause = 0.2  # before a step, and so between a draft and its verification
    run(page)
    page.wait_for_function(  # in one look: they are soon replaced
        """() => {
            const waiting = document.querySelector(
                "[data-testid=pane-speculative] .text .tok[data-state=drafted] > span");
            return waiting && !waiting.textContent.startsWith("#")
                && getComputedStyle(waiting).borderStyle === "dashed";
        }"""
    )
    expect(page.get_by_test_id("scrubber")).to_be_disabled()
    page.get_by_test_id("stop").click()
    wait_for_end(page, "cancelled")
    assert pending(page) == []
    expect(page.get_by_test_id("scrubber")).to_be_enabled()


def test_the_scrubber_rebuilds_both_panes_at_any_model_time(page, dolly):
    run(page)
    wait_for_end(page)
    page.locator("#trace").wait_for()  # the last that a run brings
    trace = dolly.last_trace()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    steps = trace.speculative.steps
    times = [steps[7].time_s - steps[7].verify_s / 2, steps[3].time_s + 1e-6, 0, 9]
    for at in times:
        seek(page, 1000 * at)
        for name, lane in trace.lanes.items():
            assert shown(page, name) == [t.text for t in lane.tokens if t.time_s <= at]
        under_way = [
            step
            for step in steps
            if step.time_s - step.verify_s - step.other_s <= at < step.time_s and step.drafted
        ]
        assert pending(page) == [PLAIN[id] for step in under_way for id in step.drafted]
        points = [
            [point for point in progress(lane) if point.time_s <= at or not point.tokens][-1]
            for lane in trace.lanes.values()
        ]
        for name, point in zip(trace.lanes, points, strict=True):
            rate = point.tokens_per_second
            if at < trace.lanes[name].steps[-1].time_s:  # at the end it says how the lane ended
                shown_pace = f"{point.tokens} / 100" + (f" · {rate:.0f} tok/s" if rate else "")
                assert pace(page, name) == shown_pace
        counts = " and ".join(str(point.tokens) for point in points)
        scrubber = page.get_by_test_id("scrubber")
        assert f"{counts} tokens" in scrubber.get_attribute("aria-valuetext")
    for name, lane in trace.lanes.items():
        said = f"100 tokens · {lane.tokens_per_second:.0f} tok/s · token limit"
        assert pace(page, name).removesuffix(" · repeats itself") == said
    assert_shows(page, trace)  # at the end again
    assert asked == []


def test_a_card_has_the_likeliest_of_both_models_and_stays_when_pinned(page, dolly):
    open_settings(page)
    page.get_by_label("number input for Temperature").fill("1")
    run(page)
    wait_for_end(page)
    lane = dolly.last_trace().speculative
    step = next(
        step
        for step in lane.steps
        if step.accepted < len(step.drafted)
        and step.drafted[step.accepted] in dict(step.draft_top[step.accepted])
    )
    page.locator(f".tok[data-state=resampled][data-step='{step.index}']").click()
    card = page.locator(".token-card")
    lists = [ranking.all_inner_texts() for ranking in _rankings(card)]
    expected = [step.target_top[step.accepted], step.draft_top[step.accepted]]
    for told_list, top in zip(lists, expected, strict=True):
        names = [entry.split("\n")[0] for entry in told_list]
        assert names == [json.dumps(PLAIN[id]) for id, _ in top]
    drafted = json.dumps(PLAIN[step.drafted[step.accepted]])
    assert drafted in card.locator("li.drafted").first.inner_text()
    told = card.inner_text()
    assert "random number" in told or step.accept_prob[step.accepted] == 0

    page.locator("[data-testid=pane-autoregressive] .text .tok").first.hover()
    assert card.inner_text() == told  # pinned
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()
    page.mouse.move(0, 0)
    page.locator("[data-testid=pane-autoregressive] .text .tok").first.hover()
    expect(card).to_contain_text("one token", use_inner_text=True)
    assert len(_rankings(card)) == 1
    page.mouse.move(0, 0)
    expect(card).to_be_hidden()

    page.locator("[data-testid=pane-speculative] .text").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.get_by_label("Instruction").hover()
    expect(card).to_be_visible()


def _rankings(card):
    return [ranking.locator("li") for ranking in card.locator("ol").all()]


def test_what_was_copied_from_an_earlier_answer_is_marked_so(page, tmp_path):
    memory = AnswerMemory()
    first = FakeDolly(PLAIN).start(Request("any", max_new_tokens=60)).finish()
    memory.add([*first.prompt_tokens, *(token.id for token in first.speculative.tokens)])
    again = FakeDolly(PLAIN).start(
        Request("any", max_new_tokens=60, drafter="memory"), memory=memory
    )
    trace = again.finish()
    legend = page.get_by_test_id("legend")
    for record, count in ((first, 0), (trace, trace.speculative.remembered)):
        open_trace(page, tmp_path, record.to_json(), f"{count} remembered.json")
        badge_says(page, f"{count} remembered.json")
        wait_for_end(page)
        assert_shows(page, record)
        marked = page.locator("[data-testid=pane-speculative] .text .tok[data-state=remembered]")
        expect(marked).to_have_count(count)
        assert ("remembered" in legend.inner_text()) == bool(count)
    assert count > 20
    marked.first.click()
    card = page.locator(".token-card")
    expect(card).to_contain_text("in an earlier answer", use_inner_text=True)
    expect(card).to_contain_text("Each model’s own probabilities", use_inner_text=True)
    expect(page.get_by_test_id("verdict")).to_contain_text(f"{count} of these remembered")


def test_a_file_replays_badged_and_a_bad_one_is_one_line_that_loses_nothing(page, dolly, tmp_path):
    dolly.pause = 0.2
    run(page)
    open_trace(page, tmp_path, "{}")
    notice = page.get_by_test_id("notice")
    notice.filter(has_text="stop the run first").wait_for()
    dolly.pause = 0.0
    wait_for_end(page)
    page.locator("#trace").wait_for()  # the last that a run brings
    open_trace(page, tmp_path, '{"schema": "trace@9"}')
    notice.filter(has_text="trace schema: “trace@9” — it must be 'trace@1'").wait_for()
    uploads = []
    page.on("request", lambda request: request.method == "POST" and uploads.append(request.url))
    open_trace(page, tmp_path, " " * (33 * 2**20 - 9), "large.json")
    said = "trace file: “33 MB” — choose one of at most 12 MB."
    notice.filter(has_text=said).wait_for()
    expect(notice).to_have_text(said)
    expect(page.locator(".toast-body")).to_have_count(0)  # Gradio would refuse it in its own words
    assert not uploads
    assert_shows(page, dolly.last_trace())
    trace = ran(temperature=1.0, max_new_tokens=40)
    open_trace(page, tmp_path, trace.to_json(), "good.json")
    badge_says(page, "Loaded · good.json")
    expect(notice).to_have_text("")
    wait_for_end(page)
    assert_shows(page, trace)
    verdict = page.get_by_test_id("verdict").text_content()
    assert f"({trace.speculative.accepted} of {trace.speculative.tested})" in verdict
    assert "just now" not in verdict


def test_an_answer_says_that_it_repeats_itself_and_that_it_is_cut_off(page, tmp_path):
    for repeating, texts in (False, PLAIN), (True, ["again\n"] * len(PLAIN)):
        trace = ran(texts, max_new_tokens=20)
        open_trace(page, tmp_path, trace.to_json(), f"{repeating}.json")
        badge_says(page, f"Loaded · {repeating}.json")
        wait_for_end(page)
        for name in trace.lanes:
            assert "token limit" in pace(page, name)
            assert ("repeats itself" in pace(page, name)) == repeating
        page.get_by_role("button", name="To the start").click()
        assert "repeats" not in pace(page, "autoregressive")  # not before the end


def test_hostile_texts_of_a_file_stay_text_and_inside_the_page(browser, url, tmp_path):
    record = json.loads(ran(STRANGE, temperature=1.0, max_new_tokens=60).to_json())
    record["request"]["instruction"] = HOSTILE + "w" * 10_000 + "\u202e"
    record["environment"]["cpu"] = "<img src=x onerror='window.hacked=4'>" + "\u202e" + "c" * 500
    trace = parse_trace(json.dumps(record))
    with opened(browser, url, 360) as page:
        open_trace(page, tmp_path, json.dumps(record), "${hacked}{{x}}.json")
        badge_says(page, "Loaded")
        wait_for_end(page)
        assert_shows(page, trace)
        page.get_by_label("show rejected drafts").check()
        for width in (360, 1280):
            fit(page, width, 900)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            page.locator("[data-testid=pane-speculative] .text").focus()
            told = ""
            for _ in range(40):
                page.keyboard.press("ArrowRight")
                told += page.locator(".token-card").inner_text()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("window.hacked") is None
        expect(
            page.locator(".pane .text .tok > * > *, .token-card :is(img, script)")
        ).to_have_count(0)
        texts = {token.text for token in trace.speculative.tokens[:30]}
        if "zero\u200bwidth\u2060" in texts:
            assert r"zero\u{200b}width\u{2060}" in told
        if "\u202egnp.exe" in texts:
            assert "\u202e" not in told
