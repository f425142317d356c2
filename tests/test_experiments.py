"""Experiments, by what they measure; and the tab that runs one."""

import json
import subprocess
import sys

import pytest

from experiments.draft_length import LENGTHS, REPEATS, sweep
from pipeline.decoding.events import FinishReason
from pipeline.request import Request
from tests.fake_dolly import FakeDolly
from tests.served import PLAIN, status_says
from ui.tabs.draft_lengths import TAB

(PLOT,) = TAB.plots


def swept(dolly, requests=1, repeats=REPEATS, lengths=LENGTHS, **settings):
    asked = [Request(f"Say {number}", max_new_tokens=12, **settings) for number in range(requests)]
    *_, result = sweep(dolly, asked, repeats, lengths)
    return result


def asked(dolly):
    """The draft length of each answer, 0 for autoregression, in their order."""
    traces = [run.trace() for run in dolly.started]
    return [trace.request["draft_length"] if trace.speculative else 0 for trace in traces]


def test_every_length_answers_as_often_and_none_always_first():
    dolly = FakeDolly(PLAIN)
    result = swept(dolly, temperature=0.7, seed=3)
    assert result.complete
    assert len(result.answers) == REPEATS * len(LENGTHS)
    starts = range(0, len(result.answers), len(LENGTHS))
    repeats = [asked(dolly)[at : at + len(LENGTHS)] for at in starts]
    assert [sorted(map(str, lengths)) for lengths in repeats] == [
        sorted(map(str, LENGTHS))
    ] * REPEATS
    assert len({lengths[0] for lengths in repeats}) == REPEATS
    assert {run.trace().request["seed"] for run in dolly.started} == {3}


def test_with_more_repeats_than_lengths_they_still_take_turns():
    dolly = FakeDolly(PLAIN)
    swept(dolly, repeats=4, lengths=(0, "auto"))
    assert asked(dolly) == [0, "auto", "auto", 0, 0, "auto", "auto", 0]


def test_a_lengths_time_is_the_mean_over_requests_of_each_ones_median():
    dolly = FakeDolly(PLAIN)
    result = swept(dolly, requests=2, lengths=(0, 4))
    traces = [run.trace() for run in dolly.started]
    times = {
        name: sorted(
            trace.speculative.seconds_per_token
            for trace in traces
            if trace.speculative and trace.request["instruction"] == name
        )
        for name in ("Say 0", "Say 1")
    }
    medians = [each[len(each) // 2] for each in times.values()]
    assert result.seconds_per_token[4] == pytest.approx(sum(medians) / 2)
    every = [time for each in times.values() for time in each]
    assert result.extremes(4) == (min(every), max(every))
    assert result.best == min((0, 4), key=result.seconds_per_token.__getitem__)
    wanted = result.seconds_per_token[0] / result.seconds_per_token[4]
    assert result.speedup(4) == pytest.approx(wanted)


def test_closed_it_starts_no_more_and_ends_the_answer_under_way():
    dolly = FakeDolly(PLAIN)
    measuring = sweep(dolly, [Request("Say something")])
    while not (result := next(measuring)).answers:
        pass
    while len(dolly.started) < 2:
        result = next(measuring)
    measuring.close()
    assert len(result.answers) == 1
    assert not result.complete
    (lane,) = dolly.last_trace().lanes.values()
    assert lane.finish is FinishReason.CANCELLED


def test_experiments_load_neither_gradio_nor_openvino():
    code = "import sys, experiments.draft_length; print({'gradio', 'openvino'} & {*sys.modules})"
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "set()"


# --- on the page ---------------------------------------------------------------------------------


def test_the_plot_is_the_median_of_what_was_measured():
    dolly = FakeDolly(PLAIN)
    figure = PLOT.draw(swept(dolly))
    assert figure.checked
    drawn = {x: y for bars in figure.data for x, y in zip(bars["x"], bars["y"], strict=True)}
    assert set(drawn) == {"none", *map(str, LENGTHS[1:])}
    times = [
        1e3 * run.trace().speculative.seconds_per_token
        for run, length in zip(dolly.started, asked(dolly), strict=True)
        if length == 4
    ]
    assert drawn["4"] == pytest.approx(sorted(times)[1], abs=1e-3)
    fastest, others = figure.data
    assert max(fastest["y"]) <= min(others["y"])
    assert [row[0] for row in figure.table().rows] == ["none", *map(str, LENGTHS[1:])]


def test_before_anything_is_measured_there_is_a_figure_too():
    result = next(sweep(FakeDolly(PLAIN), [Request("Say something")]))
    assert PLOT.draw(result).checked
    assert PLOT.draw(result).note == "0 of 30 answers measured."
    assert json.loads(TAB.value(result))["plots"]["lengths"]["table"]["rows"] == []


def test_the_page_measures_and_is_stopped(page, dolly):
    page.get_by_role("tab", name="Draft lengths").click()
    page.get_by_role("button", name="Measure every draft length").click()
    plot = page.locator("[data-plot=lengths]")
    plot.get_by_text("Fastest fixed draft length").wait_for()
    status_says(page, "Draft lengths measured")
    plot.get_by_text("As a table").click()
    plot.locator("tbody tr").nth(len(LENGTHS) - 1).wait_for()
    assert plot.locator("tbody tr").count() == len(LENGTHS)
    assert page.locator(".panes[data-source=record]").is_visible()  # the run shown stays

    dolly.pause = 0.02
    page.get_by_role("button", name="Measure every draft length").click()
    status_says(page, "Measuring")
    page.get_by_test_id("stop").click()
    plot.get_by_text("of 30 answers measured").wait_for()
    status_says(page, "Stopped")


def test_the_page_says_in_one_line_why_it_could_not_measure(page, dolly):
    dolly.fails = True
    page.get_by_role("tab", name="Draft lengths").click()
    page.get_by_role("button", name="Measure every draft length").click()
    page.get_by_test_id("notice").filter(has_text="RuntimeError the <b>engine</b> broke").wait_for()
    status_says(page, "Failed")
