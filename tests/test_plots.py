"""The plots and their tables, in a real browser."""

import csv
import io
import math

import pytest
from playwright.sync_api import expect

from pipeline.trace.metrics import cache_use
from pipeline.words import counted
from tests.served import PLAIN, next_frame, opened, run, seek, wait_for_end
from ui.plots.table import Table
from ui.tabs.steps import steps_table
from ui.tabs.what_if import details

PLOT = "document.querySelector('[data-plot=%s] .plot')"


@pytest.fixture(scope="module")
def page(browser, server):
    """A page that the tests below use one after the other."""
    with opened(browser, server[1]) as page:
        yield page


@pytest.fixture(scope="module")
def after(page, server):
    """That page, after its first run; and the trace of this."""
    run(page)
    wait_for_end(page)
    page.locator("#trace").wait_for()  # the last that a run brings
    return page, server[0].last_trace()


def show_tab(page, name):
    page.get_by_role("tab", name=name).click()


def drawn(page, name):
    page.locator(f"[data-plot={name}]").scroll_into_view_if_needed()  # else it is not drawn live
    plot = page.locator(f"[data-plot={name}] .plot.js-plotly-plot")
    plot.locator(".main-svg").first.wait_for()
    return plot


def test_every_tab_draws_its_plots_as_wide_as_it_is_with_their_tables(after):
    page, _ = after
    for tab, names in {
        "Timings": ("lanes", "race"),
        "Steps": ("cost", "yield"),
        "Acceptance": ("positions", "predicted"),
        "What if": ("speedups", "parts"),
        "Cache": ("caches",),
        "How it works": ("certificate",),
    }.items():
        show_tab(page, tab)
        for name in names:
            plot = drawn(page, name)
            wide, held = plot.evaluate(
                "e => [e.querySelector('.main-svg').clientWidth, e.offsetWidth]"
            )
            assert wide == held > (500 if tab == "Timings" else 900)  # side by side
            page.locator(f"[data-plot={name}] summary").click()
            page.locator(f"[data-plot={name}] tbody tr").first.wait_for()


def test_a_kept_picture_is_a_png(after):
    page, _ = after
    show_tab(page, "Cache")
    drawn(page, "caches")
    with page.expect_download() as download:
        page.locator("[data-plot=caches] [data-keep=png]").click()
    assert download.value.suggested_filename == "dolly-caches.png"
    assert download.value.path().read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_the_blocks_step_with_the_slider(after):
    page, trace = after
    show_tab(page, "Cache")
    lane = trace.speculative
    uses = cache_use(trace, lane).values()
    for at in (len(lane.steps), len(lane.steps) // 2, 1):
        step = lane.steps[at - 1]
        page.locator(".blocks input").fill(str(at))
        filled = page.locator(".models section").first.locator(".slot.filled, .slot.last")
        expect(filled).to_have_count(step.target_kv_len)
        for heading, use in zip(page.locator(".models h3").all(), uses, strict=True):
            assert heading.inner_text().endswith(
                f"{counted(use.tokens[at - 1], 'token')}, {counted(use.blocks[at - 1], 'block')}, "
                f"{use.megabytes[at - 1]:.2f} MB; rolled back: {use.rolled_back[at - 1]} "
                f"by this step, {use.rolled_back_so_far[at - 1]} since the prompt"
            )
    expect(page.get_by_text("The time of a rollback")).to_be_visible()
    page.locator(".blocks input").fill(str(len(lane.steps)))  # from here it follows again
    step = lane.steps[len(lane.steps) // 2]
    seek(page, 1000 * step.time_s + 1e-3)
    expect(page.locator(".blocks output")).to_have_text(f"{step.index + 1} of {len(lane.steps)}")


MARKS = """() => {
    const { _fullLayout: drawn } = document.querySelector("[data-plot=timeline] .plot");
    const plot = document.querySelector("[data-plot=timeline] .plot").getBoundingClientRect();
    const marks = document.querySelectorAll("#timeline .after:not([hidden])");
    return [...marks].map((mark) => {
        const { left, right } = mark.getBoundingClientRect();
        const border = mark.classList.contains("line") ? 1 : 0;
        return [left + border - plot.left - drawn.xaxis._offset, right - left, drawn.xaxis._length];
    }).map(([from, wide, length]) => [drawn.xaxis.p2l(from), wide, length]);
}"""


def test_a_round_is_lit_in_the_text_and_in_the_timeline_wherever_one_points(after):
    page, trace = after
    lane = trace.speculative
    step = next(step for step in lane.steps[2:] if step.accepted)
    tokens = page.locator(f".pane[data-lane=speculative] .tok[data-step='{step.index}']")
    lit, frame = page.locator(".tok.lit"), page.locator("#timeline .round")
    drawn(page, "timeline")  # scrolled to, by which the pointer comes over other things
    timeline = page.locator("[data-plot=timeline] .plot")
    tokens.first.hover()
    frame.wait_for()
    assert lit.count() == tokens.count() >= len(lane.emitted[step.index])
    plot, box = timeline.bounding_box(), frame.bounding_box()
    from_left, from_top = (box[side] - plot[side] for side in ("x", "y"))
    ends = [from_left, from_left + box["width"]]
    times = timeline.evaluate(
        "({ _fullLayout: { xaxis: x } }, ends) => ends.map((end) => x.p2l(end - x._offset))", ends
    )
    millisecond = 1000 * lane.total_s / plot["width"] * 3  # of three pixels
    assert times == pytest.approx(
        [1000 * (step.time_s - step.seconds), 1000 * step.time_s], abs=millisecond
    )
    page.mouse.move(0, 0)
    frame.wait_for(state="hidden")
    assert lit.count() == 0
    position = {"x": from_left + box["width"] / 2, "y": from_top + box["height"] - 4}
    timeline.hover(position=position)  # scrolled to
    frame.wait_for()
    assert lit.count() == tokens.count()


def test_the_timeline_marks_the_scrubber_s_moment_without_the_server(after):
    page, trace = after
    kinds = drawn(page, "timeline").evaluate(
        "({ _fullLayout: { xaxis: x, yaxis: y } = {} }) => [x?.l2p, x?._offset, x?._length, "
        "y?._offset, y?._length].map((each) => typeof each)"
    )
    assert kinds == ["function", *["number"] * 4], (
        "Plotly keeps the place of its axes elsewhere, which cover() of timeline.js reads"
    )
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    whole = 1000 * max(lane.steps[-1].time_s for lane in trace.lanes.values())
    for moment in (whole / 4, whole / 2, whole):
        seek(page, moment)
        next_frame(page)
        marks = page.evaluate(MARKS)
        assert len(marks) == 2
        for at, wide, length in marks:
            assert at == pytest.approx(moment, abs=whole / 200)
            assert wide == pytest.approx(length * (1 - moment / whole), abs=4)
    assert not asked


def test_the_sliders_of_what_if_move_the_prediction_and_not_the_run(after):
    page, trace = after
    show_tab(page, "What if")
    drawn(page, "speedups")
    drawn(page, "parts")
    grid = details(trace)["grid"]
    acceptance = page.get_by_role("slider", name="Share of drafts accepted, a")
    length = page.locator(".what-if").get_by_role("slider", name="Draft length K")
    run_dot = f"{PLOT % 'speedups'}.data[3]"
    dot = page.evaluate(f"[{run_dot}.x[0], {run_dot}.y[0]]")
    assert dot[1] == pytest.approx(trace.speedup, abs=1e-4)
    for at, k in ((20, 8), (0, 1), (14, 4)):
        acceptance.fill(str(at))
        length.fill(str(k))
        speedup = grid["speedup"][at][k - 1]
        curve = [row[k - 1] for row in grid["speedup"]]
        page.wait_for_function(
            f"curve => {PLOT % 'speedups'}.data[0].y.join() === curve.join()", arg=curve
        )
        assert page.evaluate(f"{PLOT % 'speedups'}.data[2].y") == [speedup]
        bar = f"{PLOT % 'parts'}.data.map((part) => part.x.at(-1)).join()"
        milliseconds = grid["milliseconds"][at][k - 1]
        page.wait_for_function(f"milliseconds => {bar} === milliseconds.join()", arg=milliseconds)
        words = page.locator(".what-if .predicted")
        expect(words).to_contain_text(f"{speedup:.2f}× predicted")
        expect(words).to_contain_text(grid["words"][at][k - 1])
        assert page.evaluate(f"[{run_dot}.x[0], {run_dot}.y[0]]") == dot
        share = round(100 * grid["acceptances"][at])
        expect(acceptance).to_have_attribute("aria-valuetext", f"{share} %")
    page.get_by_role("button", name="As in this run").click()
    expect(acceptance).to_have_value(str(grid["run"]["acceptance"]))
    expect(length).to_have_value(str(grid["run"]["length"]))


def test_a_pair_of_typed_sizes_is_predicted_at_once_and_nonsense_is_named(after):
    page, trace = after
    show_tab(page, "What if")
    form, sizes = page.locator(".any-sizes"), details(trace)["sizes"]
    form.get_by_label("Target, billions").fill("10")
    form.get_by_label("Draft model, billions").fill("2")
    form.get_by_label("Both in").select_option("INT4")
    at = min(range(len(sizes["shares"])), key=lambda at: abs(math.log(sizes["shares"][at] / 0.2)))
    expect(form).to_contain_text(sizes["words"][at])
    form.get_by_label("Draft model, billions").fill("12")
    expect(form).to_contain_text("larger than its target gains nothing")
    form.get_by_label("Draft model, billions").fill("")
    expect(form).to_contain_text("Type both sizes")


def test_kept_steps_are_the_table_that_no_spreadsheet_runs(page, dolly):
    dolly.texts = ["=1+1", "+x", "-y", "@cmd", "\t=z", " =blank", ",comma", '"quote', *PLAIN[:4]]
    run(page)
    wait_for_end(page)
    page.locator("#trace").wait_for()
    show_tab(page, "Steps")
    drawn(page, "cost")
    trace = dolly.last_trace()
    for button in (
        page.get_by_role("button", name="Steps as CSV"),
        page.locator("[data-plot=cost] [data-keep=csv]"),
    ):
        with page.expect_download() as download:
            button.click()
        assert download.value.suggested_filename.endswith(".csv")
        kept = download.value.path().read_bytes().decode("utf-8-sig")
        assert kept == steps_table(trace).csv()
    lane = trace.speculative
    rows = csv.DictReader(io.StringIO(kept, newline=""))
    for step, tokens, row in zip(lane.steps, lane.emitted, rows, strict=False):
        assert float(row["Verify ms"]) == pytest.approx(1000 * step.verify_s, abs=0.01)
        assert row["Emitted text"].removeprefix("'") == "".join(token.text for token in tokens)


def test_a_spreadsheet_runs_no_cell_and_takes_numbers_of_any_sign():
    kept = {"-3.25": "-3.25", "0.5": "0.5", "plain": "plain", "": "", 'a"b,c': 'a"b,c'}
    cells = kept | {risky: f"'{risky}" for risky in ("-x", "+1", "=1", "@a", "\tz", " =b", "-1-1")}
    _, row = csv.reader(io.StringIO(Table((), [[*cells]]).csv(), newline=""))
    assert row == [*cells.values()]


def test_a_sampled_verdict_leads_to_the_test_of_its_claim(browser, url, page):
    name = "How this was tested"
    expect(page.get_by_role("link", name=name)).to_be_hidden()  # greedy: the texts were compared
    with opened(browser, f"{url}?temperature=1") as sampled:
        run(sampled)
        wait_for_end(sampled)
        sampled.get_by_role("link", name=name).click()
        shown = "document.querySelector('[data-plot=certificate]')?.getBoundingClientRect().top"
        sampled.wait_for_function(f"{shown} < innerHeight / 2")
        tab = sampled.get_by_role("tab", name="How it works")
        expect(tab).to_have_attribute("aria-selected", "true")


def test_plots_follow_a_run_that_goes_on(browser, url, dolly):
    """Zoomed, in the tab that is looked at alone, and in the other theme."""
    dolly.pause = 0.2  # so that it goes on for minutes, and so for longer than this test
    race, timeline, cost = (PLOT % name for name in ("race", "timeline", "cost"))
    with opened(browser, f"{url}?max_new_tokens=512") as page:
        run(page)
        drawn(page, "timeline")
        page.wait_for_function(  # no longer the recorded run
            f"{timeline}.layout.uirevision.startsWith('2026-01-01')"
        )
        assert page.evaluate(MARKS) == []
        grown(page, f"{timeline}.data[2].x.length")
        assert page.evaluate(MARKS) == []  # also where it is longer than the recorded run

        plot = drawn(page, "race")
        page.wait_for_function(f"{race}.layout.uirevision.startsWith('2026-01-01')")
        box = plot.locator(".nsewdrag").bounding_box()
        y = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + box["width"] * 0.3, y)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.6, y, steps=4)
        page.mouse.up()
        page.wait_for_function(f"() => !{race}.layout.xaxis.autorange")
        span = "e => e.layout.xaxis.range.map(Math.round).join()"
        zoomed = plot.evaluate(span)
        grown(page, f"{race}.data[0].x.length")
        assert plot.evaluate(span) == zoomed

        show_tab(page, "Steps")
        drawn(page, "cost")
        points = page.evaluate(f"{race}.data[0].x.length")
        grown(page, f"{cost}.data[0].x.length")
        assert page.evaluate(f"{race}.data[0].x.length") == points

        show_tab(page, "Cache")
        page.wait_for_function(  # the blocks follow too
            """() => {
                const said = document.querySelector(".blocks output").textContent;
                const [at, of] = said.split(" of ").map(Number);
                return at === of && of > 2;
            }"""
        )
        show_tab(page, "Steps")

        ink = page.evaluate(f"{cost}.layout.font.color")
        page.get_by_label("Switch between light and dark").click()
        drawn(page, "cost")  # the button may be far above it
        page.wait_for_function(f"before => {cost}.layout.font.color !== before", arg=ink)
        expect(page.get_by_test_id("scrubber")).to_be_disabled()  # it still goes on


def grown(page, length):
    """Returns once a plot has at least three points more."""
    before = page.evaluate(length)
    page.wait_for_function(f"before => {length} > before + 2", arg=before)
