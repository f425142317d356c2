"""What the tabs show of a run, checked in Python."""

import json
import re
from dataclasses import replace

import pytest

from pipeline.decoding.economics import CostModel, Costs
from pipeline.models.pairs import DEFAULT_PAIR, PAIRS
from pipeline.request import Request
from pipeline.trace.metrics import TESTED, measured, prediction
from pipeline.trace.reader import parse_trace
from pipeline.words import percent
from tests.fake_dolly import FakeDolly
from tests.served import PLAIN
from tests.traces import alone, changed, contradicting, costing, old, ran, timed
from ui.component import ASSETS
from ui.run.race import replayed
from ui.run.recorded import recorded
from ui.tabs.cache import picture, saved
from ui.tabs.experiments import VIEWS
from ui.tabs.how import how, paper
from ui.tabs.other_pairs import any_sizes, expected, share_of
from ui.tabs.registry import RUN_TABS, TABS, run_values
from ui.tabs.tab import RunTab
from ui.tabs.what_if import details
from ui.timeline import TIMELINE
from ui.verdict import summary, verdict


def figures(trace):
    tabs = RUN_TABS.values()
    return {plot.name: plot.draw(trace) for tab in tabs for plot in tab.plots}


def bars(plot):
    return {bar["name"]: bar for bar in plot.data if bar["type"] == "bar"}


def test_each_plot_is_a_figure_that_plotly_knows_whatever_the_run_came_to():
    trace = ran(temperature=0.7)
    begun = FakeDolly(PLAIN).start(Request("any")).trace()
    for each in (trace, ran(), begun, *(alone(trace, name) for name in trace.lanes)):
        plots = figures(each)
        assert list(plots) == [
            "timeline",
            *("lanes", "race", "cost", "yield"),
            *("positions", "rejections", "reliability", "predicted"),
            *("speedups", "parts", "others", "caches", "certificate"),
        ]
        for plot in plots.values():
            assert plot.checked.layout.uirevision == each.created
            table = plot.table()
            assert all(len(row) == len(table.columns) for row in table.rows)


def test_every_plot_of_a_tab_has_its_place_on_the_page_and_a_name_of_its_own():
    """Else it would fail in the browser, where `plots.js` looks for its element."""
    trace, names = ran(), []
    for tab in (TIMELINE, *TABS):
        places = re.findall(r'data-plot="(\w+)"', tab.markup)
        assert places == [plot.name for plot in tab.plots]
        if isinstance(tab, RunTab):
            assert list(json.loads(tab.value(trace))["plots"]) == places
        names += places
    for view in VIEWS:
        places = re.findall(r'data-plot="(\w+)"', view.markup)
        assert list(json.loads(view.value(None, "saved"))["plots"]) == places
        names += places
    assert len(set(names)) == len(names)


def test_every_view_comes_from_the_trace_alone_also_after_it_was_a_file():
    trace = ran(temperature=0.7)
    assert run_values(parse_trace(trace.to_json())) == run_values(trace)
    shown = replayed(parse_trace(json.dumps(old(trace))), "Old")
    assert set(shown.views) == {*RUN_TABS, "experiment-ratio", "tour"}
    steps = sum(len(lane.steps) for lane in trace.lanes.values())
    assert shown.lines.count('"kind":"step"') == steps


def test_bars_differ_in_more_than_colour():
    plots = figures(ran(temperature=0.7))
    for name in ("timeline", "lanes", "cost", "yield", "parts", "caches"):
        shapes = [bar["marker"]["pattern"]["shape"] for bar in bars(plots[name]).values()]
        assert len(set(shapes)) == len(shapes) > 1


def test_the_race_ends_at_each_lanes_last_token_and_clock():
    trace = ran()
    for line, lane in zip(figures(trace)["race"].data, trace.lanes.values(), strict=True):
        assert line["y"][0] == 0
        assert line["y"][-1] == len(lane.tokens)
        assert line["x"][-1] == pytest.approx(1000 * lane.steps[-1].time_s, abs=0.01)


def test_each_step_of_both_lanes_is_a_bar_as_wide_and_as_high_as_its_time_on_one_scale():
    def scale(axis):
        low, high = axis["domain"]
        return (high - low) / axis["range"][1]  # of the height, per millisecond

    trace = costing(0.002, 0.011)
    plot = figures(trace)["timeline"]
    for lane, axis in zip(trace.lanes.values(), ("y", "y2"), strict=True):
        parts = [bar for bar in plot.data if bar["yaxis"] == axis and bar["name"] != "prefill"]
        assert [bar["name"] for bar in parts] == ["draft", "verify", "other"]
        times = [1000 * step.seconds for step in lane.steps]
        heights = zip(*(bar["y"] for bar in parts), strict=True)
        assert [sum(each) for each in heights] == pytest.approx(times, abs=0.01)
        for bar in parts:
            assert bar["width"] == pytest.approx(times, abs=0.01)
            ends = [x + wide / 2 for x, wide in zip(bar["x"], bar["width"], strict=True)]
            assert ends == pytest.approx([1000 * step.time_s for step in lane.steps], abs=0.01)
        assert parts[1]["text"] == [str(len(tokens)) for tokens in lane.emitted]
    assert set(parts[1]["text"]) > {"1"}
    assert "4 tokens were drafted, each in a pass of its own" in parts[0]["customdata"]
    assert scale(plot.layout["yaxis"]) == pytest.approx(scale(plot.layout["yaxis2"]))
    layout = figures(alone(trace, "speculative"))["timeline"].layout
    assert "yaxis2" not in layout
    assert layout["yaxis"]["domain"] == [0.0, 1.0]


def test_one_slow_step_does_not_flatten_the_others_and_is_named():
    rest = {"draft_s": 0.002, "other_s": 0.0}
    slow = timed(
        {
            "autoregressive": lambda step: {"verify_s": 0.005, "draft_s": 0.0, "other_s": 0.0},
            "speculative": lambda step: {"verify_s": 0.5 if step.index == 3 else 0.006, **rest},
        }
    )
    cost, timeline = figures(slow)["cost"], figures(slow)["timeline"]
    assert cost.layout["yaxis"]["range"][0] == 0
    assert 8 < cost.layout["yaxis"]["range"][1] < 60
    assert timeline.layout["yaxis2"]["range"][1] < 60
    assert [bar["x"] for bar in cost.data if bar["name"] == "cut off"] == [[4]]
    assert "longer steps: 4 (502 ms)" in cost.note
    assert "longer steps: speculative 4 (50" in timeline.note
    even = figures(costing(0.002, 0.011))
    assert even["cost"].note == even["timeline"].note == ""
    assert "range" not in even["cost"].layout["yaxis"]


def test_break_even_and_the_best_length_are_the_cost_model_s():
    trace = costing(0.002, 0.011)
    model = measured(trace)
    note = figures(trace)["predicted"].note
    assert f"K = 4 tokens pays from an acceptance of {100 * model.break_even:.0f} %" in note
    assert f"the best draft length is {model.best_length(range(9))}." in note
    assert "c = 0.20 target steps; extra time to verify, v = 0.10" in note
    said = "In this run, one over 5 tokens took 1.10 times as long as one over a single token"
    assert how(trace)["pass"].startswith(said)
    never = figures(costing(0.020, 0.030))["predicted"].note
    assert "does not pay at any acceptance" in never
    assert "the best draft length is 0, no drafting" in never
    few = figures(costing(0.002, 0.011, max_new_tokens=10))["predicted"]
    assert not few.data
    assert f"{TESTED} drafted tokens that were tested" in few.note


@pytest.mark.parametrize(
    ("share", "told"), [(1.0, "Harder to guess than"), (0.7, "As easy"), (0.0, "Easier")]
)
def test_a_draft_s_acceptance_is_shown_beside_what_it_reached_when_it_was_made(share, told):
    trace = ran()
    pair = trace.pair | {"draft": {"acceptance": [share, 0.6]}}
    plot = figures(replace(trace, pair=pair))["positions"]
    assert [each["y"] for each in plot.data if "held-out" in each.get("name", "")] == [[share, 0.6]]
    assert plot.note.startswith(told)
    assert f"and on held-out questions in {100 * share:.0f} %." in plot.note
    unknown = figures(replace(trace, pair=trace.pair | {"draft": None}))["positions"]
    assert unknown.note == ""
    copied = [replace(step, draft_top=()) for step in trace.speculative.steps]  # by no model
    lanes = {"speculative": replace(trace.speculative, steps=tuple(copied))}
    assert figures(replace(trace, pair=pair, lanes=lanes))["positions"].note == ""


def test_a_run_that_lost_where_its_medians_gain_says_not_from_where_drafting_pays():
    mixed = contradicting()
    assert mixed.speedup < 0.95 < 1.05 < measured(mixed).speedup
    for said in (figures(mixed)["predicted"].note, how(mixed)["cost"]):
        assert "too short or too uneven to say from where drafting pays" in said
        assert "best draft length" not in said


def test_what_if_shows_the_cost_model_at_every_acceptance_and_length():
    trace = costing(0.002, 0.011)
    grid, model = details(trace)["grid"], measured(trace)
    assert details(trace)["reason"] == ""
    for at, acceptance in enumerate(grid["acceptances"]):
        for length in range(1, 9):
            there = replace(model, acceptance=acceptance, length=length)
            shown = grid["speedup"][at][length - 1]
            assert shown == pytest.approx(there.speedup, abs=1e-4)
            whole = 1000 * trace.autoregressive.seconds_per_token / there.speedup
            assert sum(grid["milliseconds"][at][length - 1]) == pytest.approx(whole, abs=0.01)
            words = grid["words"][at][length - 1]
            drafting, verifying, other, even = map(int, re.findall(r"(\d+) %", words))
            assert drafting + verifying + other == pytest.approx(100, abs=1)
            assert even == round(100 * there.break_even)
            best = there.best_length(range(9)) or "0, no drafting"
            assert words.endswith(f"best draft length at this acceptance: {best}")
            assert grid["break_even"][length - 1] == pytest.approx(there.break_even, abs=1e-4)
    never = details(costing(0.020, 0.030))["grid"]["words"][0][0]
    assert "with K = 1, drafting pays at no acceptance" in never
    run = grid["run"]
    assert grid["acceptances"][run["acceptance"]] == pytest.approx(model.acceptance, abs=1e-4)
    assert run["length"] == model.length


def test_another_pair_s_prediction_is_near_what_was_measured_at_its_size():
    """Dolly v2 3B's shape with a draft of 160 million parameters, in int8, on one machine: with
    what is predicted from the embedded pair, and with its own measured times.
    """
    rows = json.loads((ASSETS.parent / "lab/results/larger.json").read_text())["rows"]
    ms = {(row["model"].split(",")[0], row["tokens"]): row["ms"] for row in rows}

    def curve(model):
        return tuple(ms[model, tokens] / ms[model, 1] for tokens in range(1, 10))

    for acceptance in (0.5, 0.7, 0.9):
        here = CostModel(acceptance, Costs(0.2, curve(f"{DEFAULT_PAIR}/target")), 2)
        draft = ms["160M", 1] / ms["3B", 1]
        model = expected(share_of(PAIRS["dolly-v2-3b"]), here)
        assert (draft, model.draft) == pytest.approx((0.08, 0.06), abs=0.006)  # as the note says
        measured_there = replace(model, costs=Costs(draft, curve("3B")))
        assert model.speedup == pytest.approx(measured_there.speedup, rel=0.12)


def test_every_other_pair_of_the_registry_is_predicted_by_its_share_of_bytes():
    plot = figures(costing(0.002, 0.011))["others"]
    assert [row[0] for row in plot.table().rows] == plot.data[0]["y"]
    assert {*plot.data[0]["y"]} == {name for name, pair in PAIRS.items() if pair.draft} - {"fake"}
    few = figures(costing(0.002, 0.011, max_new_tokens=10))["others"]
    assert few.empty
    assert few.note.startswith("No prediction")


def test_a_pair_of_any_sizes_is_predicted_as_one_of_the_registry_is():
    trace = costing(0.002, 0.011)
    sizes, plot = any_sizes(trace), figures(trace)["others"]
    drawn = dict(zip(plot.data[0]["y"], plot.data[0]["x"], strict=True))
    for name, speedup in drawn.items():
        share = share_of(PAIRS[name])
        nearest = min(sizes["shares"], key=lambda each: abs(each - share))
        at = sizes["shares"].index(nearest)
        words = sizes["words"][at]
        assert float(words.split("×")[0]) == pytest.approx(round(speedup, 2), abs=0.04)
        assert f"acceptance, {percent(measured(trace).acceptance)} · it pays " in words
    step_ms = 1000 * trace.autoregressive.median_step_s
    size = trace.pair["target"]["bytes"]
    assert sizes["milliseconds"]["fp16"] == pytest.approx(step_ms * 2e9 / size)
    assert any_sizes(alone(trace, "speculative")) is None
    assert any_sizes(replace(trace, pair=trace.pair | {"target": {}})) is None  # of unknown size


def test_the_bars_of_what_if_are_the_seconds_per_token_of_both_lanes():
    trace = costing(0.002, 0.011)
    parts = bars(figures(trace)["parts"]).values()
    sums = [sum(each) for each in zip(*(bar["x"] for bar in parts), strict=True)]
    each = [1000 * lane.seconds_per_token for lane in trace.lanes.values()]
    assert sums[:2] == pytest.approx(each, abs=0.01)


def test_without_known_costs_what_if_gives_the_reason_and_no_number():
    trace = costing(0.002, 0.011)
    idle = tuple(replace(step, drafted=(), accepted=0) for step in trace.speculative.steps)
    for each, reason in (
        (alone(trace, "speculative"), "one method alone"),
        (costing(0.002, 0.011, max_new_tokens=10), f"it needs {TESTED}"),
        (changed(trace, steps=idle), "nothing was drafted"),
        (changed(trace, finish=None), "the race goes on"),
    ):
        assert reason in details(each)["reason"]
        assert details(each)["grid"] is prediction(each) is None
        assert figures(each)["speedups"].data == figures(each)["parts"].data == []


def test_what_if_says_what_auto_means_for_it():
    trace = costing(0.002, 0.011)
    assert "auto" not in figures(trace)["speedups"].note
    auto = replace(trace, request={**trace.request, "draft_length": "auto"})
    assert "Its draft length was auto" in figures(auto)["speedups"].note


def test_an_acceptance_is_in_whole_per_cent_wherever_it_is_shown():
    trace = costing(0.002, 0.011, max_new_tokens=60)
    share = f"{100 * trace.speculative.acceptance_rate:.0f} %"
    plots = figures(trace)
    for told in (
        verdict(trace)["acceptance"],
        plots["predicted"].note,
        plots["speedups"].note,
        how(trace)["acceptance"],
    ):
        assert share in told
    shown = run_values(trace)
    words = [*(shown[name] for name in RUN_TABS), json.dumps(verdict(trace)), summary(trace)]
    assert not re.search(r"\ba = 0\.|\d\.\d+ ?%|\.[1-9]%", "\n".join(words))


def test_blocks_are_drawn_as_large_as_the_trace_says_and_only_where_there_are_some():
    trace = ran()
    assert picture(trace)["block"] == trace.pair["kv_block"] == 32
    assert "in blocks of 32 tokens" in picture(trace)["kept_as"]
    pair = {**trace.pair, "kv_cache": "stateful", "kv_block": None}
    assert picture(replace(trace, pair=pair))["block"] == 0
    assert "without blocks" in picture(replace(trace, pair=pair))["kept_as"]
    words = picture(replace(trace, pair=pair))["models"]["target"][0]["words"]
    assert words == "3 tokens, 0.00 MB; rolled back: 3 by this step, 3 since the prompt"


def test_a_trace_that_does_not_say_what_was_rolled_back_has_no_bars_of_it_but_says_so():
    trace = ran()
    assert {"rolled back, target", "rolled back, draft"} <= bars(figures(trace)["caches"]).keys()
    before = parse_trace(json.dumps(old(trace)))
    plot = figures(before)["caches"]
    assert not bars(plot)
    assert "does not record" in plot.note
    assert plot.table().rows[0][4] == ""
    steps = picture(before)["models"]["target"]
    assert {step["rolled"] for step in steps} == {None}
    assert not [step["words"] for step in steps if "rolled back" in step["words"]]


def test_a_drafter_without_a_cache_has_none_to_show():
    """A look-up has read the text, but keeps no keys and values."""
    trace = ran()
    assert list(picture(trace)["models"]) == ["target", "draft"]
    steps = tuple(replace(step, draft_kv_bytes=0) for step in trace.speculative.steps)
    trace = changed(trace, steps=steps)
    assert any(step.draft_kv_len for step in steps)
    assert list(picture(trace)["models"]) == ["target"]
    assert not [each["name"] for each in figures(trace)["caches"].data if "draft" in each["name"]]


def test_what_blocks_save_is_a_committed_measurement_that_says_where():
    told = saved()
    assert told["columns"][1:3] == ["paged, ms", "stateful, ms"]
    for _, blocks, trimmed, _, less in told["rows"]:
        assert float(less) == pytest.approx(float(trimmed) - float(blocks), abs=0.011)
    assert "Measured on" in told["where"]
    assert "python -m lab rounds" in told["where"]
    assert "Paper: Dolly v2 12B" in paper()["where"]


def test_the_example_is_a_rejection_of_this_run_with_its_own_numbers():
    trace = ran(temperature=0.8)
    told = how(trace)
    where = {
        f"step {step.index + 1}, position {step.accepted + 1} of the draft": step
        for step in trace.speculative.steps
    }
    step = where[told["where"]]
    drafted = step.drafted[step.accepted]
    assert told["drafted"] == json.dumps(trace.pieces[drafted])
    assert f"random number = {step.uniform[step.accepted]:.3f} →" in told["what"]
    rows = told["candidates"]["rows"]
    shares = [int(row[-1].removesuffix(" %")) for row in rows]
    assert sum(shares) == pytest.approx(100, abs=len(rows))
    for _, target, draft, residual, _ in rows:
        wanted = max(0.0, float(target or 0) - float(draft or 0))
        assert float(residual) == pytest.approx(wanted, abs=0.002)
    assert how(alone(trace, "autoregressive"))["state"] == "none"


def test_the_example_of_block_verification_is_a_whole_draft_of_this_run():
    """The random numbers go from the last token back to the one that was accepted."""
    trace = ran(temperature=1.0, verification="block", max_new_tokens=60)
    told = how(trace)
    assert told["state"] == "block"
    step = trace.speculative.steps[int(told["where"].removeprefix("step ")) - 1]
    assert f"accepted {step.accepted} of {len(step.drafted)};" in told["what"]
    rows = told["candidates"]["rows"]
    rejected = len(step.drafted) - step.accepted
    assert [row[1] for row in rows] == ["accepted"] * step.accepted + ["rejected"] * rejected
    drawn = [bool(row[-1]) for row in rows]
    assert drawn == [place >= step.accepted - 1 for place in range(len(rows))]
    for row, below in zip(rows[step.accepted - 1 :], [True, *[False] * len(rows)], strict=False):
        assert (float(row[-1].split()[0]) < float(row[-2])) == below
    assert how(ran(verification="block"))["state"] == "token"
    assert how(ran(temperature=1.0, verification="block", drafter="lookup"))["state"] == "none"


def test_a_plot_of_a_race_too_short_for_it_shows_the_recorded_run_and_says_so():
    short = ran(max_new_tokens=1)
    for tables in (True, False):  # after the race, and while it goes on
        plots = json.loads(RUN_TABS["acceptance"].value(short, tables))["plots"]
        for name, of_recorded in figures(recorded()).items():
            if name in plots:
                shown = plots[name]
                assert (shown["data"] == of_recorded.data) == tables
                assert ("Shown instead: the recorded run." in shown["note"]) == tables
                assert shown["layout"]["xaxis"]["visible"] == tables  # no axes around nothing


def test_a_drawing_while_it_runs_has_no_tables():
    trace = ran()
    for tab in RUN_TABS.values():
        plots = json.loads(tab.value(trace, tables=False))["plots"]
        assert all("table" not in plot for plot in plots.values())
