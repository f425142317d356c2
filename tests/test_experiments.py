"""Studies: what each measures, their command, and their tab on the page."""

import json
import subprocess
import sys
from dataclasses import asdict, replace

import pytest
from playwright.sync_api import expect

from lab import __main__ as command
from lab import saved as results
from lab.draft_lengths import LENGTHS, REPEATS
from lab.prompts import KINDS
from lab.registry import STUDIES, find_study
from lab.result import Column, Mark, Result
from lab.saved import Saved, path_of, save, saved
from lab.studies import drafters, identical, lengths, ratio, request, signatures, typical, widths
from pipeline.dolly import Dolly
from pipeline.environment import MemoryUse
from pipeline.request import Request
from tests.fake_dolly import Everything, FakeDolly, setup
from tests.served import PLAIN, opened, served, status_says
from tests.traces import alone, ran
from ui.tabs import experiments as tab
from ui.tabs.experiments import VIEWS, ExperimentView


def run(study, dolly, **changes):
    """The complete result."""
    asked = Request("Say it", max_new_tokens=12)
    *_, result = study.measure(setup(dolly, asked, **changes))
    assert result.complete
    return result


class Alike(FakeDolly):
    """Its draft is its target."""

    def _draft(self):
        return self._target()


# --- every study ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_described_in_full_and_its_committed_result_is_of_it_as_it_is_now(name):
    study = find_study(name)
    names = [column.name for column in study.columns]
    assert study.question.endswith("?")
    assert study.command.startswith(f"python -m lab {name}")
    assert len({*names}) == len(names)
    chart = study.chart
    shown = {chart.x, *chart.y, *(chart.whiskers or ()), *filter(None, [chart.series])}
    assert shown <= {*names}
    if last := saved(name):
        whole = json.loads(path_of(name).read_text())
        assert (whole["study"], whole["question"]) == (name, study.question)
        assert whole["columns"] == [asdict(column) for column in study.columns]
        assert {key for row in last.rows for key in row} <= {*names}
        assert last.sentence == study.conclude(last.rows)
        assert study.holds(last.rows)


def test_a_cell_is_shown_in_its_columns_unit_and_a_result_says_how_far_it_is():
    share, count = Column("a", "Accepted", "%", 1), Column("n", "Texts", digits=0)
    assert [share.heading, count.heading] == ["Accepted, %", "Texts"]
    assert [share.text(0.5), share.text(None), count.text(3)] == ["50.0", "", "3"]
    assert [count.text("none"), count.text(True), count.text(False)] == ["none", "yes", "no"]
    assert Result(doing="compiling the models").progress == "compiling the models"
    assert Result(done=3, planned=9).progress == "3 of 9 measured"
    assert Result(done=9, planned=9).progress == ""
    assert not Result().complete


def test_a_saved_result_is_read_as_it_was(tmp_path):
    result = replace(run(request.STUDY, FakeDolly(PLAIN)), figures={"beside": [1, 2]})
    assert saved("request", tmp_path) is None
    save(request.STUDY, result, tmp_path)
    last = saved("request", tmp_path)
    assert (last.rows, last.pair, last.created) == (result.rows, result.pair, result.created)
    assert (last.figures, last.sentence) == (
        {"beside": [1, 2]},
        request.STUDY.conclude(result.rows),
    )
    assert last.badge == f"Measured {result.created[:10]} on {last.environment['cpu']}"


def test_an_installed_package_writes_into_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path / "dolly_twice" / "lab" / "results")
    monkeypatch.chdir(tmp_path)
    path = save(request.STUDY, run(request.STUDY, FakeDolly(PLAIN)))
    assert path.resolve() == tmp_path / "results" / "request.json"
    assert not results.RESULTS.exists()


def test_the_page_works_where_the_laboratory_is_not_there():
    """Without the tab, and without the results that other tabs show."""
    code = """if True:
        import sys
        class Absent:
            def find_spec(self, name, *_):
                if name.partition(".")[0] == "lab":
                    raise ModuleNotFoundError(name=name)
        sys.meta_path.insert(0, Absent())
        from pipeline.models.choice import Choice
        from pipeline.models.pairs import DEFAULT_PAIR, find_pair
        from pipeline.models.store import Store
        from ui.page import Page
        from ui.run.loader import Loader
        from ui.run.race import replayed
        from ui.run.recorded import recorded
        from ui.tabs import cache, how
        from ui.tabs.registry import TABS
        Page(Loader(Choice(find_pair(DEFAULT_PAIR), Store()), lambda choice: sys.exit()))
        shown = replayed(recorded(), "Recorded").views
        assert {tab.name for tab in TABS} - {*shown} == {"digits", "api"}, shown.keys()
        assert (cache.saved(), how.paper()) == (None, None)
        assert "experiment" not in shown["tour"]
        print(*(name for name in sys.modules if name.partition(".")[0] == "lab"))
    """
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.stdout, ended.returncode) == ("\n", 0), ended.stderr


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def here(monkeypatch, tmp_path):
    """The command with a fake pair; its results are kept in this folder."""
    monkeypatch.setattr(Dolly, "of", lambda choice: FakeDolly(PLAIN))
    monkeypatch.setattr(command, "save", lambda *of: save(*of, tmp_path))
    return tmp_path


def test_the_command_prints_the_table_and_what_came_out_and_keeps_both(here, capsys):
    assert command.main(["request", "--repeats", "1"]) == 0
    out = capsys.readouterr().out
    last = saved("request", here)
    assert [row["length"] for row in last.rows] == [*LENGTHS]
    assert last.sentence in out
    heading, *lines = out.splitlines()
    assert "Time per token, ms" in heading
    assert [line.split()[0] for line in lines[: len(LENGTHS)]] == [*LENGTHS]
    assert str(here / "request.json") in out


def test_an_interrupted_study_shows_what_it_has_measured_and_keeps_nothing(
    here, monkeypatch, capsys
):
    def measure(made):
        for result in request.STUDY.measure(made):
            yield result
            if result.rows:
                raise KeyboardInterrupt

    monkeypatch.setitem(STUDIES, "request", replace(request.STUDY, measure=measure))
    assert command.main(["request"]) == 130
    printed = capsys.readouterr()
    heading, first, *_ = printed.out.splitlines()
    assert "Time per token, ms" in heading
    assert first.split()[0] == LENGTHS[0]
    assert "not saved" in printed.err
    assert not [*here.iterdir()]


def test_progress_is_a_line_at_every_tenth_where_no_terminal_updates_it(here, capsys):
    assert command.main(["request", "--repeats", "2"]) == 0
    count = 2 * len(LENGTHS)
    lines = [line for line in capsys.readouterr().err.splitlines() if "measuring" in line]
    tenths = sorted({10 * done // count: done for done in range(count, -1, -1)}.values())
    assert lines == [f"measuring {done} of {count}" for done in tenths]


def test_the_command_fails_if_what_a_study_claims_does_not_hold(here, monkeypatch):
    wrong = replace(request.STUDY, holds=lambda rows: False)
    monkeypatch.setitem(STUDIES, "request", wrong)
    assert command.main(["request", "--repeats", "1"]) == 1


def test_the_list_names_every_study_with_question_time_and_last_result(capsys):
    assert command.main(["--list"]) == 0
    out = capsys.readouterr().out
    for study in STUDIES.values():
        assert f"{study.name}: {study.question}\n    {study.takes}: {study.command}" in out
        if last := saved(study.name):
            assert f"    {last.sentence} ({last.badge})" in out
    assert out.count("no result yet") == sum(not saved(name) for name in STUDIES)


def test_a_study_has_arguments_of_its_own(capsys):
    with pytest.raises(SystemExit):
        command.main(["lossless", "--help"])
    assert {"--sampled", "--data", "--contexts"} <= {*capsys.readouterr().out.split()}


def test_the_command_refuses_in_one_line(here, capsys):
    assert command.main(["nothing"]) == 2
    assert command.main(["request", "--weights", "int8"]) == 2
    assert command.main(["request", "--repeats", "-1"]) == 2
    assert command.main(["full_size"]) == 2
    lines = capsys.readouterr().err.splitlines()
    kinds = [line.split(":")[0] for line in lines]
    assert kinds == ["study", "weights", "repeats", "tokenizer"]
    assert "“nothing” — choose one of request, " in lines[0]


# --- what each measures ---------------------------------------------------------------------------


def test_every_draft_length_is_measured_on_the_request_of_the_form():
    dolly = FakeDolly(PLAIN)
    result = run(request.STUDY, dolly)
    assert [row["length"] for row in result.rows] == [*LENGTHS]
    assert len(dolly.started) == REPEATS * len(LENGTHS)
    assert {each.trace().request["instruction"] for each in dolly.started} == {"Say it"}
    for row in result.rows:
        assert row["fastest"] <= row["ms"] <= row["slowest"]
        assert row["speedup"] == pytest.approx(result.rows[0]["ms"] / row["ms"])
    assert result.rows[0]["acceptance"] is None


def test_every_drafter_that_copies_no_answer_is_tested_at_each_place_on_the_same_texts():
    dolly = FakeDolly(PLAIN)
    result = run(drafters.STUDY, dolly)
    asked = {each.trace().request["drafter"] for each in dolly.started}
    assert asked == {*dolly.pair.drafters} - {"memory"}
    assert len(dolly.started) == len(asked) * (1 + len(KINDS))
    for name in asked:
        traces = [run.trace() for run in dolly.started]
        lanes = [trace.speculative for trace in traces if trace.request["drafter"] == name]
        rows = [row for row in result.rows if row["drafter"] == name]
        assert len(rows) == max(step.tested for lane in lanes for step in lane.steps)
        for row in rows:
            steps = [step for lane in lanes for step in lane.steps if step.tested >= row["place"]]
            assert row["tested"] == len(steps)
            assert row["accepted"] * len(steps) == sum(s.accepted >= row["place"] for s in steps)
    assert drafters.STUDY.conclude(()).startswith("No draft was tested")


@pytest.fixture(scope="module")
def by_kind():
    return run(lengths.STUDY, FakeDolly(PLAIN), repeats=1)


def test_every_draft_length_is_measured_on_every_kind_of_prompt(by_kind):
    cells = [(row["kind"], row["length"]) for row in by_kind.rows]
    assert cells == [(kind, length) for kind in KINDS for length in LENGTHS]


def test_with_the_target_as_its_draft_everything_is_accepted_and_another_is_noticed():
    result = run(identical.STUDY, Alike(PLAIN))
    for row in result.rows:
        assert row["acceptance"] == row["identical"] == 1
        assert row["block"] == row["length"] + 1
        # A round costs 1 + 0.2 K steps by the fake's costs.
        wanted = (row["length"] + 1) / (1 + 0.2 * row["length"])
        assert row["predicted"] == pytest.approx(wanted)
    assert identical.STUDY.conclude(result.rows).startswith("Every draft is accepted")
    other = run(identical.STUDY, FakeDolly(PLAIN))
    assert min(row["acceptance"] for row in other.rows) < 1
    assert identical.STUDY.conclude(other.rows).startswith("A draft is rejected")


def test_exact_verification_keeps_the_distribution_and_typical_acceptance_does_not():
    result = run(typical.STUDY, FakeDolly(PLAIN))
    assert len(result.rows) == 8  # two drafters, two temperatures, two rules
    for exact, lossy in zip(result.rows[::2], result.rows[1::2], strict=True):
        assert (exact["rule"], lossy["rule"]) == ("token", "typical")
        assert exact["tested"] == pytest.approx(0, abs=1e-6)
        assert exact["speedup"] == 1
        assert 0.01 < lossy["per_token"] <= lossy["tested"] < 1


def test_signatures_are_counted_by_races_and_kinds():
    class Full(FakeDolly):
        def memory_uses(self):
            return (MemoryUse("it", 95, 100, "ask for less"),)

    for kind, fired in ((FakeDolly, [0] * 4), (Full, [3, 3, 6, 1])):
        result = run(signatures.STUDY, kind([f" w{i}" for i in range(60)]), repeats=3)
        assert [row["count"] for row in result.rows] == [3, 3, 6, 1]
        assert [row["memory"] for row in result.rows] == fired


# --- the tab --------------------------------------------------------------------------------------

REQUEST = next(view for view in VIEWS if view.experiment is request.STUDY)


def shown(view, result, state="running"):
    return json.loads(view.value(result, state))


@pytest.fixture
def last(monkeypatch):
    """A result that is committed."""
    rows = run(request.STUDY, FakeDolly(PLAIN)).rows
    sentence = request.STUDY.conclude(rows)
    last = Saved("2026-01-02T03:04:05", {"cpu": "A processor"}, {}, rows, sentence)
    monkeypatch.setattr(tab, "last_result", lambda name: last)
    return last


def test_every_committed_result_is_a_figure_that_plotly_knows():
    for view in VIEWS:
        last = results.saved(view.experiment.name)
        assert view.plot.draw(tab.Shown(last.rows if last else (), "")).checked


def test_bars_and_lines_of_several_series_differ_in_more_than_colour(by_kind):
    view = ExperimentView(lengths.STUDY)
    lines = view.plot.draw(tab.Shown(by_kind.rows, "")).data
    assert [line["name"] for line in lines] == [*KINDS]
    assert len({(line["line"]["dash"], line["marker"]["symbol"]) for line in lines}) == len(KINDS)
    view = ExperimentView(identical.STUDY)
    bars = view.plot.draw(tab.Shown(run(identical.STUDY, Alike(PLAIN)).rows, "")).data
    assert [bar["name"] for bar in bars] == ["Measured speedup", "Predicted speedup"]
    assert len({bar["marker"]["pattern"]["shape"] for bar in bars}) == 2


def test_bars_are_what_was_measured_with_the_range_of_all_answers():
    result = run(request.STUDY, FakeDolly(PLAIN))
    (bars,) = REQUEST.plot.draw(tab.Shown(result.rows, result.created)).data
    assert bars["x"] == [*LENGTHS]
    assert bars["y"] == pytest.approx([row["ms"] for row in result.rows], abs=1e-4)
    reached = [y + up for y, up in zip(bars["y"], bars["error_y"]["array"], strict=True)]
    assert reached == pytest.approx([row["slowest"] for row in result.rows], abs=1e-4)


def test_points_of_comparison_and_a_race_stand_beside_the_lines():
    view = next(view for view in VIEWS if view.experiment is ratio.STUDY)
    speedups = {"2×": (0.5, 1.5), "4×": (0.6, 2.0), "10×": (0.7, 2.4)}
    rows = [
        {"ratio": name, "acceptance": float(a), "speedup": s, "lowest": s - 0.1, "highest": s + 0.2}
        for name, each in speedups.items()
        for a, s in enumerate(each)
    ]
    race = Mark(0.7, 1.3, "the race above")
    figure = view.plot.draw(tab.Shown(tuple(rows), "", race))
    lines = [each for each in figure.data if each["mode"] == "lines+markers"]
    points = [each for each in figure.data if each["mode"] == "markers"]
    assert [(line["name"], line["x"]) for line in lines] == [(n, [0, 100]) for n in speedups]
    assert [point["name"].split(",")[0] for point in points] == [*["the paper"] * 2, race.name]
    assert (points[-1]["x"], points[-1]["y"]) == ([70], [1.3])
    assert len({point["marker"]["symbol"] for point in points}) == 3
    assert figure.checked


def test_a_finished_race_is_on_the_plot_of_ratios_and_on_no_other():
    trace = ran(max_new_tokens=40)
    for race, on in ((trace, True), (alone(trace, "speculative"), False)):
        values = tab.TAB.run_values(race)
        assert [*values] == ["experiment-ratio"]
        (plot,) = json.loads(values["experiment-ratio"])["plots"].values()
        assert plot["data"][-1]["name"].startswith("the race above") is on
    (plot,) = json.loads(tab.TAB.run_values(trace)["experiment-ratio"])["plots"].values()
    assert plot["data"][-1]["y"] == [pytest.approx(trace.speedup, abs=1e-4)]


def test_what_is_measured_here_replaces_the_committed_result_from_its_first_row_on(last):
    view = ExperimentView(request.STUDY)
    asked = setup(FakeDolly(PLAIN), Request("Say it", max_new_tokens=12))
    measured = [*request.STUDY.measure(asked)]
    committed = shown(view, None, "saved")
    (plot,) = committed["plots"].values()
    assert [row[0] for row in plot["table"]["rows"]] == plot["data"][0]["x"] == [*LENGTHS]
    texts = {name: committed[name] for name in ("sentence", "badge")}
    badge = "Measured 2026-01-02 on A processor"
    assert texts == {"sentence": last.sentence, "badge": badge}
    begun = shown(view, measured[0])
    assert begun == {**committed, "state": "running", "progress": "0 of 30 measured"}
    part = shown(view, next(result for result in measured if result.rows))
    assert (part["badge"], part["sentence"]) == ("", "")
    assert (part["progress"], part["plotted"]) == ("1 of 30 measured", "yes")
    whole = shown(view, measured[-1], "done")
    assert whole["badge"] == "Measured here"
    assert whole["sentence"] == request.STUDY.conclude(measured[-1].rows)


def test_a_study_without_a_result_says_so(monkeypatch):
    monkeypatch.setattr(tab, "last_result", lambda name: None)
    value = shown(ExperimentView(request.STUDY), None, "saved")
    assert value["sentence"] == "Not measured yet."
    assert value["plotted"] == "no"
    assert value["plots"]["study_request"]["table"]["rows"] == []


# --- in the browser -------------------------------------------------------------------------------


def card(page, name):
    """Opened; the tab shows an index."""
    page.get_by_role("tab", name="Experiments").click()
    of_study = page.locator(f".experiment[data-experiment={name}]")
    if not of_study.evaluate("e => e.open"):
        of_study.locator("summary").first.click()
    return of_study


def test_the_page_shows_the_committed_results_at_once_and_runs_only_short_studies(page):
    for view in VIEWS:
        of_view, texts = card(page, view.experiment.name), shown(view, None, "saved")
        of_view.locator(".came-out", has_text=texts["sentence"]).wait_for()
        expect(of_view.locator(".measured")).to_have_text(texts["badge"])
        assert of_view.locator(".start").is_visible() == (view.experiment.seconds <= 60)
        assert of_view.locator(".command").is_visible() == (view.experiment.seconds > 60)
        of_view.scroll_into_view_if_needed()
        if texts["plotted"] == "yes":
            of_view.locator(".js-plotly-plot .main-svg").first.wait_for()
        else:
            expect(of_view.locator("[data-plot]")).to_be_hidden()


def test_a_study_is_run_on_the_page_stopped_there_and_fails_in_one_line(page, dolly):
    of_request = card(page, "request")
    start = of_request.get_by_role("button", name="Run “Your request” here")
    start.click()
    of_request.locator(".measured", has_text="Measured here").wait_for()
    status_says(page, "Measured: Your request")
    expect(of_request.locator(".came-out")).to_contain_text(
        "The fastest fixed draft length is", use_inner_text=True
    )
    of_request.get_by_text("As a table").click()
    expect(of_request.locator("tbody tr")).to_have_count(len(LENGTHS))
    expect(page.locator(".panes[data-source=record]")).to_be_visible()  # the run shown stays
    with page.expect_download() as download:
        of_request.locator("[data-keep=csv]").click()
    assert download.value.suggested_filename == "dolly-study_request.csv"

    dolly.pause = 0.02
    start.click()
    status_says(page, "Measuring: Your request")
    of_request.locator(".so-far", has_text="of 30 measured").wait_for()
    of_request.get_by_role("button", name="Stop “Your request”").click()
    status_says(page, "Stopped")
    of_request.locator(".start").wait_for()
    expect(of_request.locator(".so-far")).to_contain_text("of 30 measured", use_inner_text=True)

    dolly.fails = True
    start.click()
    page.get_by_test_id("notice").filter(has_text="RuntimeError the <b>engine</b> broke").wait_for()
    status_says(page, "Failed")
    of_request.locator(".start").wait_for()
    texts = shown(REQUEST, None, "saved")  # the committed result is back
    expect(of_request.locator(".came-out")).to_have_text(texts["sentence"])


def test_where_a_pass_lies_between_memory_and_computing_is_measured_on_the_page(page, monkeypatch):
    """Of any model whose passes of n tokens take 9 + n ms, and one of 128 tokens 64 ms."""
    seconds = {count: [(9 + count) / 1e3] for count in widths.WIDTHS} | {128: [0.064]}
    rows = (*widths.rows_of("any", 8_000_000, seconds, bandwidth=2e9),)
    result = Result(rows=rows, done=1, planned=1)
    monkeypatch.setattr(Everything, "folder", lambda *of: None)
    monkeypatch.setattr(widths, "measured", lambda *given: iter([result]))
    of_passes = card(page, "widths")
    of_passes.get_by_role("button", name="here").click()
    of_passes.locator(".measured", has_text="Measured here").wait_for()
    expect(of_passes.locator(".came-out")).to_have_text(widths.STUDY.conclude(rows))
    drawn = "({ data }) => data.map(({ x, y }) => [x, y])"
    lines = of_passes.locator(".plot").evaluate(drawn)
    assert [x for x, _ in lines] == [[*widths.WIDTHS]] * 4
    measured, separate, *limits = (y for _, y in lines)
    assert measured == pytest.approx([9 + count for count in widths.WIDTHS])
    assert separate == pytest.approx([10 * count for count in widths.WIDTHS])
    assert limits == [pytest.approx([4] * 9), pytest.approx([n / 2 for n in widths.WIDTHS])]


def test_a_study_waits_for_the_run_before_it(browser):
    dolly, long = FakeDolly(PLAIN, pause=0.2), "?max_new_tokens=512"
    with served(dolly) as url, opened(browser, url + long) as first, opened(browser, url) as second:
        first.get_by_test_id("run").click()
        status_says(first, "Racing")
        of_request = card(second, "request")
        of_request.get_by_role("button", name="Run “Your request” here").click()
        second.get_by_test_id("place").filter(has_text="in the queue").wait_for()
        assert len(dolly.started) == 1
        first.get_by_test_id("stop").click()
        status_says(second, "Measuring")
