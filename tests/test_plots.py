"""The plots: what they show, checked in Python; how they behave, in a real browser."""

import csv
import io
import json
import re
from dataclasses import replace

import pytest

from pipeline.request import Request
from pipeline.trace.reader import parse_trace
from tests.fake_dolly import FakeDolly
from tests.served import MARKUP, PLAIN, opened, run, seek, wait_for_end
from tests.traces import alone, old, ran, timed
from ui.plots.table import Table
from ui.tabs.cache import picture, saved
from ui.tabs.how import how, paper
from ui.tabs.registry import RUN_TABS, TABS, run_values
from ui.tabs.tab import RunTab

PLOT = "document.querySelector('[data-plot=%s] .plot')"
FORMULAS = ["=1+1", "+x", "-y", "@cmd", "\t=z", " =blank", ",comma", '"quote', *PLAIN[:4]]


def figures(trace):
    return {plot.name: plot.draw(trace) for tab in RUN_TABS.values() for plot in tab.plots}


def bars(plot):
    return {bar["name"]: bar for bar in plot.data if bar["type"] == "bar"}


# --- what they show ------------------------------------------------------------------------------


def test_each_of_the_six_is_a_figure_that_plotly_knows_whatever_the_run_came_to():
    trace = ran(temperature=0.7)
    begun = FakeDolly(PLAIN).start(Request("any")).trace()
    for each in (trace, ran(), begun, *(alone(trace, name) for name in trace.lanes)):
        plots = figures(each)
        assert list(plots) == [
            *("lanes", "race", "cost", "yield", "positions", "predicted"),
            "caches",
        ]
        for plot in plots.values():
            assert plot.checked.layout.uirevision == each.created
            table = plot.table()
            assert all(len(row) == len(table.columns) for row in table.rows)


def test_every_plot_of_a_tab_has_its_place_on_the_page_and_a_name_of_its_own():
    """Else it would fail in the browser, where `plots.js` looks for its element."""
    trace, names = ran(), []
    for tab in TABS:
        places = re.findall(r'data-plot="(\w+)"', tab.markup)
        assert places == [plot.name for plot in tab.plots]
        if isinstance(tab, RunTab):
            assert list(json.loads(tab.value(trace))["plots"]) == places
        names += places
    assert len(set(names)) == len(names)


def test_every_view_comes_from_the_trace_alone_also_after_it_was_a_file():
    trace = ran(temperature=0.7)
    assert run_values(parse_trace(trace.to_json())) == run_values(trace)
    assert set(run_values(parse_trace(json.dumps(old(trace))))) == set(RUN_TABS)


def test_bars_differ_in_more_than_colour():
    plots = figures(ran(temperature=0.7))
    for name in ("lanes", "cost", "yield", "caches"):
        shapes = [bar["marker"]["pattern"]["shape"] for bar in bars(plots[name]).values()]
        assert len(set(shapes)) == len(shapes) > 1


def test_the_lanes_bars_add_up_to_the_lanes_clocks():
    trace = ran()
    parts = bars(figures(trace)["lanes"])
    for place, lane in enumerate(trace.lanes.values()):
        whole = sum(bar["x"][place] for bar in parts.values())
        assert whole == pytest.approx(1000 * lane.steps[-1].time_s, abs=0.01)


def test_the_race_ends_at_each_lanes_last_token_and_clock():
    trace = ran()
    for line, lane in zip(figures(trace)["race"].data, trace.lanes.values(), strict=True):
        assert line["y"][0] == 0
        assert line["y"][-1] == len(lane.tokens)
        assert line["x"][-1] == pytest.approx(1000 * lane.steps[-1].time_s, abs=0.01)


def test_a_mark_is_what_the_steps_tokens_cost_one_by_one():
    trace = timed(
        {"autoregressive": lambda step: {"draft_s": 0.0, "verify_s": 0.010, "other_s": 0.0}}
    )
    (marks,) = [d for d in figures(trace)["cost"].data if d["name"] == "break-even"]
    lane = trace.speculative
    made = [sum(token.step == step.index for token in lane.tokens) for step in lane.steps]
    assert marks["y"] == pytest.approx([10.0 * count for count in made])


def test_one_slow_run_does_not_flatten_the_others_and_is_marked():
    slow = timed(
        {
            "autoregressive": lambda step: {"verify_s": 0.005, "other_s": 0.0},
            "speculative": lambda step: {
                "draft_s": 0.002,
                "verify_s": 0.5 if step.index == 3 else 0.006 + 0.0001 * (step.index % 5),
                "other_s": 0.0,
            },
        }
    )
    plot = figures(slow)["cost"]
    low, high = plot.layout["yaxis"]["range"]
    assert low == 0
    assert 8.4 < high < 60
    (arrows,) = [d for d in plot.data if d["name"] == "cut off"]
    assert arrows["x"] == [4]
    assert "longer steps: 4 (502 ms)" in plot.note
    even = timed(
        {"speculative": lambda step: {"draft_s": 0.002, "verify_s": 0.006, "other_s": 0.0}}
    )
    assert figures(even)["cost"].note == ""
    assert "range" not in figures(even)["cost"].layout["yaxis"]


def test_blocks_are_drawn_as_large_as_the_trace_says_and_only_where_there_are_some():
    trace = ran()
    assert picture(trace)["block"] == trace.pair["kv_block"] == 32
    assert "in blocks of 32 tokens" in picture(trace)["kept_as"]
    pair = {**trace.pair, "kv_cache": "stateful", "kv_block": None}
    assert picture(replace(trace, pair=pair))["block"] == 0
    assert "without blocks" in picture(replace(trace, pair=pair))["kept_as"]


def test_a_trace_that_does_not_say_what_was_rolled_back_has_no_bars_of_it_but_says_so():
    trace = ran()
    assert {"rolled back, target", "rolled back, draft"} <= bars(figures(trace)["caches"]).keys()
    before = parse_trace(json.dumps(old(trace)))
    plot = figures(before)["caches"]
    assert not bars(plot)
    assert "does not record" in plot.note
    assert plot.table().rows[0][4] == ""
    assert {row["rolled"] for row in picture(before)["models"]["target"]} == {None}


def test_a_drafter_without_a_cache_has_none_to_show():
    """A look-up has read the text, but keeps no keys and values."""
    trace = ran()
    assert list(picture(trace)["models"]) == ["target", "draft"]
    steps = tuple(replace(step, draft_kv_bytes=0) for step in trace.speculative.steps)
    lanes = {**trace.lanes, "speculative": replace(trace.speculative, steps=steps)}
    trace = replace(trace, lanes=lanes)
    assert any(step.draft_kv_len for step in steps)
    assert list(picture(trace)["models"]) == ["target"]
    assert not [each["name"] for each in figures(trace)["caches"].data if "draft" in each["name"]]


def test_what_blocks_save_is_a_committed_measurement_that_says_where():
    told = saved()
    assert told["columns"][1:3] == ["paged, ms", "stateful, ms"]
    for _, blocks, trimmed, _, less in told["rows"]:
        assert float(less) == pytest.approx(float(trimmed) - float(blocks), abs=0.011)
    assert "Measured on" in told["where"]
    assert "benchmarks.rounds" in told["where"]
    assert "Paper: Dolly v2 12B" in paper()["where"]


def test_the_example_is_a_rejection_of_this_run_with_its_own_numbers():
    trace = ran(temperature=0.8)
    told = how(trace)
    assert told["state"] == "sampled"
    lane = trace.speculative
    at = [
        step
        for step in lane.steps
        if f"step {step.index + 1}, position {step.accepted + 1} of the draft"
        == told["fields"]["where"]
    ]
    (step,) = at
    drafted = step.drafted[step.accepted]
    assert told["fields"]["drafted"] == json.dumps(trace.pieces[drafted])
    assert told["fields"]["drawn"] == f"{step.uniform[step.accepted]:.3f}"
    rows = told["tables"]["candidates"]["rows"]
    shares = [int(row[-1].removesuffix(" %")) for row in rows]
    assert sum(shares) == pytest.approx(100, abs=len(rows))
    for _, target, draft, residual, _ in rows:
        wanted = max(0.0, float(target or 0) - float(draft or 0))
        assert float(residual) == pytest.approx(wanted, abs=0.002)

    greedy = how(ran())
    assert greedy["state"] == "greedy"
    assert "drawn" not in greedy["fields"]
    assert how(alone(trace, "autoregressive"))["state"] == "none"


def test_a_drawing_while_it_runs_has_no_tables():
    trace = ran()
    for tab in RUN_TABS.values():
        plots = json.loads(tab.value(trace, tables=False))["plots"]
        assert all("table" not in plot for plot in plots.values())


# --- how they behave -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def after(browser, fake, url):
    """A page whose run has ended, and its trace."""
    with opened(browser, url) as page:
        run(page)
        wait_for_end(page)
        yield page, fake.last_trace()


@pytest.fixture(scope="module")
def running(browser, fake, url):
    """A page whose run goes on for longer than its tests take."""
    fake.pause = 0.2
    with opened(browser, url) as page:
        run(page)
        yield page
    fake.pause = 0.0


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
        "Cache": ("caches",),
    }.items():
        show_tab(page, tab)
        for name in names:
            plot = drawn(page, name)
            wide, held = plot.evaluate(
                "e => [e.querySelector('.main-svg').clientWidth, e.offsetWidth]"
            )
            assert wide == held > 900
            page.locator(f"[data-plot={name}] summary").click()
            page.locator(f"[data-plot={name}] tbody tr").first.wait_for()


def test_plots_follow_the_theme(after):
    page, _ = after
    show_tab(page, "Timings")
    inks = set()
    for _ in range(2):
        ink = drawn(page, "race").evaluate("e => e.layout.font.color")
        page.get_by_label("Switch between light and dark").click()
        page.wait_for_function(f"ink => {PLOT % 'race'}.layout.font.color !== ink", arg=ink)
        inks.add(ink)
    assert len(inks) == 2


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
    for at in (len(lane.steps), 1):
        step = lane.steps[at - 1]
        page.locator(".blocks input").fill(str(at))
        filled = page.locator(".models section").first.locator(".slot.filled, .slot.last")
        assert filled.count() == step.target_kv_len
        words = page.locator(".models section h3").first.inner_text()
        assert f"{step.target_kv_len} tokens" in words
    assert page.get_by_text("The time of a rollback").is_visible()


def test_the_blocks_follow_the_scrubber(after):
    page, trace = after
    show_tab(page, "Cache")
    steps = trace.speculative.steps
    for step in (steps[len(steps) // 2], steps[-1]):
        seek(page, 1000 * step.time_s + 1e-3)
        said = page.locator(".blocks output").inner_text()
        assert said == f"{step.index + 1} of {len(steps)}"
        words = page.locator(".models section h3").first.inner_text()
        assert f"{step.target_kv_len} tokens" in words


def test_the_blocks_follow_a_race_that_goes_on(page, dolly):
    run(page)
    wait_for_end(page)
    show_tab(page, "Cache")
    page.locator(".blocks input").fill("2")  # as left by a look at the run before
    dolly.pause = 0.05
    run(page)
    page.wait_for_function(
        """() => {
            const said = document.querySelector(".blocks output").textContent;
            const [at, of] = said.split(" of ");
            return at === of && of > 2 && of < 30;
        }"""
    )


def test_kept_steps_are_numbers_and_text_that_no_spreadsheet_runs(browser, url, dolly):
    dolly.texts = FORMULAS
    kept = []
    with opened(browser, url) as page:
        run(page)
        wait_for_end(page)
        show_tab(page, "Steps")
        drawn(page, "cost")
        for button in (
            page.get_by_role("button", name="Steps as CSV"),
            page.locator("[data-plot=cost] [data-keep=csv]"),
        ):
            with page.expect_download() as download:
                button.click()
            assert download.value.suggested_filename.endswith(".csv")
            kept.append(download.value.path().read_bytes().decode("utf-8-sig"))
    assert kept[0] == kept[1]
    rows = list(csv.DictReader(io.StringIO(kept[0], newline="")))
    lane = dolly.last_trace().speculative
    assert len(rows) == sum(len(each.steps) for each in dolly.last_trace().lanes.values())
    guarded = 0
    for step, row in zip(lane.steps, rows, strict=False):
        assert float(row["Verify ms"]) == pytest.approx(1000 * step.verify_s, abs=0.01)
        made = "".join(token.text for token in lane.tokens if token.step == step.index)
        risky = made.lstrip()[0] in "=+-@"
        assert row["Emitted text"] == ("'" + made if risky else made)
        guarded += risky
    assert guarded


def test_numbers_stay_numbers_whatever_their_sign():
    cells = [
        "-3.25",
        "12",
        "0.5",
        "-x",
        "+1",
        "=1",
        "@a",
        "\tz",
        " =b",
        "plain",
        "",
        "-1-1",
        'a"b,c',
    ]
    ((*kept,),) = list(csv.reader(io.StringIO(Table((), [cells]).csv(), newline="")))[1:]
    assert kept[:3] == cells[:3]
    assert kept[3:9] == ["'" + cell for cell in cells[3:9]]
    assert kept[9:11] == cells[9:11]
    assert kept[11:] == ["'-1-1", 'a"b,c']


def test_the_explanation_tells_a_token_of_the_visitors_own_run_as_text(browser, url, dolly):
    dolly.texts = [MARKUP[i % len(MARKUP)] for i in range(len(PLAIN))]
    with opened(browser, url) as page:
        run(page)
        wait_for_end(page)
        show_tab(page, "How it works")
        told = how(dolly.last_trace())
        page.wait_for_function("document.querySelector('.how').dataset.state === 'greedy'")
        shown = page.locator(".how del[data-field=drafted]").text_content()
        assert shown == told["fields"]["drafted"]
        assert page.locator(".how [data-table=candidates] tbody tr").count() == 5
        assert "arXiv 2311.04951" in page.locator(".how .paper").inner_text()
        assert page.locator(".how [data-table=paper] tbody tr").count() == 2
        show_tab(page, "Steps")
        page.locator("[data-plot=cost] summary").click()
        assert page.evaluate("window.hacked") is None
        assert page.locator("#details :is(td, .how) :is(img, script)").count() == 0


def test_no_tab_scrolls_sideways(browser, url, dolly):
    dolly.texts = ["i" * 400, *PLAIN[1:]]
    with opened(browser, url, 360) as page:
        run(page)
        wait_for_end(page)
        for tab in ("Timings", "Steps", "Acceptance", "Cache", "How it works"):
            show_tab(page, tab)
            for summary in page.locator("#details summary").all():
                if summary.is_visible():
                    summary.click()
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, tab


def test_a_zoom_survives_an_update(running):
    length = f"{PLOT % 'race'}.data[0].x.length"
    span = "e => e.layout.xaxis.range.map(Math.round).join()"
    plot = drawn(running, "race")
    revision = f"{PLOT % 'race'}.layout.uirevision"
    running.wait_for_function(
        f"() => {revision}.startsWith('2026-01-01')"
    )  # no longer the recorded
    box = plot.locator(".nsewdrag").bounding_box()
    y = box["y"] + box["height"] / 2
    running.mouse.move(box["x"] + box["width"] * 0.3, y)
    running.mouse.down()
    running.mouse.move(box["x"] + box["width"] * 0.6, y, steps=4)
    running.mouse.up()
    running.wait_for_function(f"() => !{PLOT % 'race'}.layout.xaxis.autorange")
    zoomed, points = plot.evaluate(span), running.evaluate(length)
    running.wait_for_function(f"points => {length} > points", arg=points)
    assert plot.evaluate(span) == zoomed


def test_while_a_run_goes_on_only_the_tab_that_is_looked_at_is_drawn(running):
    show_tab(running, "Steps")
    drawn(running, "cost")
    race, cost = (f"{PLOT % name}.data[0].x.length" for name in ("race", "cost"))
    points, before = running.evaluate(race), running.evaluate(cost)
    running.wait_for_function(f"before => {cost} > before", arg=before)
    assert running.evaluate(race) == points
