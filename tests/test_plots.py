"""The plots: what they show, checked in Python; how they behave, in a real browser."""

import csv
import io
import json
import re
from dataclasses import replace
from functools import partial

import pytest

from pipeline.decoding.decoders import Speculative
from pipeline.decoding.draft_length import Fixed
from pipeline.decoding.drafters import ModelDrafter
from pipeline.decoding.events import Step
from pipeline.decoding.sampling import SamplingParams
from pipeline.request import Request
from pipeline.runtime.kv_cache.paged import PAGED
from pipeline.trace.reader import parse_trace
from tests.fake_dolly import PROMPT, FakeDolly
from tests.fakes import FakeLM
from tests.served import MARKUP, PLAIN, opened, run, seek, wait_for_end
from tests.test_cost_model import trace_of
from ui.plots.figure import robust_limit
from ui.plots.table import Table
from ui.tabs.acceptance import by_position, wilson
from ui.tabs.cache import BLOCK, picture, rolled_back, saved
from ui.tabs.how import how, paper
from ui.tabs.registry import RUN_TABS, TABS, run_values
from ui.tabs.steps import yields
from ui.tabs.tab import RunTab

PLOT = "document.querySelector('[data-plot=%s] .plot')"
FORMULAS = ["=1+1", "+x", "-y", "@cmd", "\t=z", " =blank", ",comma", '"quote', *PLAIN[:4]]


def figures(trace):
    return {plot.name: plot.draw(trace) for tab in RUN_TABS.values() for plot in tab.plots}


def alone(trace, name):
    return replace(trace, lanes={name: trace.lanes[name]})


def bars(plot):
    return {bar["name"]: bar for bar in plot.data if bar["type"] == "bar"}


# --- what they show ------------------------------------------------------------------------------


def test_each_of_the_six_is_a_figure_that_plotly_knows_whatever_the_run_came_to():
    trace = trace_of(temperature=0.7)
    begun = FakeDolly(PLAIN).start(Request("any")).trace()
    for each in (trace, trace_of(), begun, *(alone(trace, name) for name in trace.lanes)):
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
    trace, names = trace_of(), []
    for tab in TABS:
        places = re.findall(r'data-plot="(\w+)"', tab.markup)
        assert places == [plot.name for plot in tab.plots]
        if isinstance(tab, RunTab):
            assert list(json.loads(tab.value(trace))["plots"]) == places
        names += places
    assert len(set(names)) == len(names)


def test_every_view_comes_from_the_trace_alone_also_after_it_was_a_file():
    trace = trace_of(temperature=0.7)
    assert run_values(parse_trace(trace.to_json())) == run_values(trace)
    old = json.loads(trace.to_json())  # as one was before steps told the likeliest tokens
    del old["pieces"]
    for lane in old["lanes"].values():
        for step in lane["steps"]:
            del step["target_top"], step["draft_top"]
    assert set(run_values(parse_trace(json.dumps(old)))) == set(RUN_TABS)


def test_bars_differ_in_more_than_colour():
    plots = figures(trace_of(temperature=0.7))
    for name in ("lanes", "cost", "yield", "caches"):
        shapes = [bar["marker"]["pattern"]["shape"] for bar in bars(plots[name]).values()]
        assert len(set(shapes)) == len(shapes) > 1


def test_the_lanes_bars_add_up_to_the_lanes_clocks():
    trace = trace_of()
    parts = bars(figures(trace)["lanes"])
    for place, lane in enumerate(trace.lanes.values()):
        whole = sum(bar["x"][place] for bar in parts.values())
        assert whole == pytest.approx(1000 * lane.steps[-1].time_s, abs=0.01)


def test_the_race_ends_at_each_lanes_last_token_and_clock():
    trace = trace_of()
    for line, lane in zip(figures(trace)["race"].data, trace.lanes.values(), strict=True):
        assert line["y"][0] == 0
        assert line["y"][-1] == len(lane.tokens)
        assert line["x"][-1] == pytest.approx(1000 * lane.steps[-1].time_s, abs=0.01)


def test_a_mark_is_what_the_steps_tokens_cost_one_by_one():
    trace = trace_of(
        {"autoregressive": lambda step: {"draft_s": 0.0, "verify_s": 0.010, "other_s": 0.0}}
    )
    (marks,) = [d for d in figures(trace)["cost"].data if d["name"] == "break-even"]
    lane = trace.speculative
    made = [sum(token.step == step.index for token in lane.tokens) for step in lane.steps]
    assert marks["y"] == pytest.approx([10.0 * count for count in made])


def test_one_slow_run_does_not_flatten_the_others_and_is_marked():
    slow = trace_of(
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
    assert "run 4 (502 ms)" in plot.note
    even = trace_of(
        {"speculative": lambda step: {"draft_s": 0.002, "verify_s": 0.006, "other_s": 0.0}}
    )
    assert figures(even)["cost"].note == ""
    assert "range" not in figures(even)["cost"].layout["yaxis"]


def test_the_robust_limit_keeps_at_least_three_quarters():
    assert robust_limit([5.0] * 20) is None
    assert robust_limit([1.0, 2.0, 3.0]) is None
    values = [5.0 + 0.1 * (i % 7) for i in range(40)] + [80.0, 90.0]
    limit = robust_limit(values)
    assert max(values[:40]) < limit < 80
    split = [1.0] * 15 + [100.0] * 25  # no outliers: most are large
    assert robust_limit(split) is None


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_yield_is_every_token_made_and_every_draft_lost(temperature):
    lane = trace_of(temperature=temperature).speculative
    for step, count in zip(lane.steps, yields(lane), strict=True):
        made = [token for token in lane.tokens if token.step == step.index]
        lost = count["rejected"] + count["unused"]
        assert sum(count.values()) - lost == len(made)
        assert lost == len(step.drafted) - sum(token.origin == "accepted" for token in made)
        assert min(count.values()) >= 0


def test_acceptance_by_position_adds_up_to_the_lanes():
    lane = trace_of().speculative
    counts = by_position(lane)
    assert sum(tested for tested, _ in counts) == lane.tested
    assert sum(passed for _, passed in counts) == lane.accepted
    for tested, passed in counts:
        low, high = wilson(passed, tested)
        assert 0 <= low <= passed / tested <= high <= 1


class LoggedLM(FakeLM):
    """Counts the tokens that each rollback forgets."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.forgotten = 0

    def rollback(self, length):
        self.forgotten += len(self.tokens) - length
        super().rollback(length)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_what_was_rolled_back_follows_from_the_trace(temperature):
    target = LoggedLM(12, seed=0)
    draft = LoggedLM(12, seed=1, like=target, likeness=0.8)
    decoder = Speculative(
        target, ModelDrafter(draft, 12, frozenset()), partial(Fixed, 3), frozenset(), 5
    )
    told, so_far = [], (0, 0)
    for event in decoder.generate(PROMPT, SamplingParams(temperature, seed=0), 100):
        if isinstance(event, Step):
            now = target.forgotten, draft.forgotten
            told.append((now[0] - so_far[0], now[1] - so_far[1]))
            so_far = now
    trace = trace_of(temperature=temperature, draft_length=3)
    lane = trace.speculative
    assert rolled_back(trace, lane, "target") == [rolled for rolled, _ in told]
    assert rolled_back(trace, lane, "draft") == [rolled for _, rolled in told]


def test_a_block_is_as_large_as_the_caches_make_it_and_only_pages_have_them():
    assert PAGED.block_size == BLOCK
    trace = trace_of(kv_cache="paged")
    assert picture(trace)["block"] == BLOCK
    assert picture(trace_of(kv_cache="stateful"))["block"] == 0
    replaced = replace(trace, pair={**trace.pair, "kv_cache": "stateful"})  # it could not page
    assert picture(replaced)["block"] == 0


def test_look_up_has_no_cache_to_show():
    trace = trace_of(drafter="lookup")
    assert any(step.draft_kv_len for step in trace.speculative.steps)  # it has read the text
    assert list(picture(trace)["models"]) == ["target"]
    assert not [each["name"] for each in figures(trace)["caches"].data if "draft" in each["name"]]
    assert list(picture(trace_of())["models"]) == ["target", "draft"]


def test_what_blocks_save_is_a_committed_measurement_that_says_where():
    told = saved()
    for _, blocks, trimmed, _, less in told["rows"]:
        assert float(less) == pytest.approx(float(trimmed) - float(blocks), abs=0.011)
    assert "Measured on" in told["where"]
    assert "benchmarks.rounds" in told["where"]
    assert "Theirs" in paper()["where"]


def test_the_example_is_a_rejection_of_this_run_with_its_own_numbers():
    trace = trace_of(temperature=0.8)
    told = how(trace)
    assert told["state"] == "sampled"
    lane = trace.speculative
    at = [
        step
        for step in lane.steps
        if f"target run {step.index + 1}, draft position {step.accepted + 1}"
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

    greedy = how(trace_of())
    assert greedy["state"] == "greedy"
    assert "drawn" not in greedy["fields"]
    assert how(alone(trace, "autoregressive"))["state"] == "none"


def test_a_drawing_while_it_runs_has_no_tables():
    trace = trace_of()
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
    assert page.get_by_text("What blocks save against trimming").is_visible()


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
        assert row["Made text"] == ("'" + made if risky else made)
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
