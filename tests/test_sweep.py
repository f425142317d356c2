"""Every draft length, measured: as often as the others, in turns, stopped within a step."""

import pytest

from pipeline.decoding.events import FinishReason
from pipeline.request import Request
from tests.fake_dolly import FakeDolly
from tests.served import PLAIN, status_says
from ui.run.turn import Turn
from ui.tabs.draft_lengths import LENGTHS, REPEATS, Sweep


def swept(dolly, **request):
    sweep = Sweep(dolly, Request("Say something", max_new_tokens=12, **request), Turn())
    for _ in sweep:
        pass
    return sweep


def asked(dolly):
    """The draft length of each answer, 0 for autoregression, in their order."""
    traces = [run.trace() for run in dolly.started]
    return [trace.request["draft_length"] if trace.speculative else 0 for trace in traces]


def test_every_length_answers_as_often_and_none_always_first():
    dolly = FakeDolly(PLAIN)
    sweep = swept(dolly, temperature=0.7, seed=3)
    assert sweep.ended
    assert sweep.answers == REPEATS * len(LENGTHS)
    starts = range(0, sweep.answers, len(LENGTHS))
    repeats = [asked(dolly)[at : at + len(LENGTHS)] for at in starts]
    assert [sorted(map(str, lengths)) for lengths in repeats] == [
        sorted(map(str, LENGTHS))
    ] * REPEATS
    assert len({lengths[0] for lengths in repeats}) == REPEATS
    assert {run.trace().request["seed"] for run in dolly.started} == {3}


def test_the_plot_is_the_median_of_what_was_measured():
    dolly = FakeDolly(PLAIN)
    sweep = swept(dolly)
    plot = sweep.figure
    assert plot.checked  # known to Plotly
    drawn = {x: y for bars in plot.data for x, y in zip(bars["x"], bars["y"], strict=True)}
    assert set(drawn) == {"none", *map(str, LENGTHS[1:])}
    times = [
        1e3 * run.trace().speculative.seconds_per_token
        for run, length in zip(dolly.started, asked(dolly), strict=True)
        if length == 4
    ]
    assert drawn["4"] == pytest.approx(sorted(times)[1], abs=1e-3)
    fastest, others = plot.data
    assert max(fastest["y"]) <= min(others["y"])
    assert [row[0] for row in plot.table().rows] == ["none", *map(str, LENGTHS[1:])]


def test_stopped_it_says_how_far_it_came_and_starts_no_more():
    dolly = FakeDolly(PLAIN, pause=0.01)
    sweep = Sweep(dolly, Request("Say something"), Turn())
    answers = iter(sweep)
    while not sweep.answers:
        next(answers)
    answers.close()
    sweep.stop()
    assert "1 of 30" in sweep.figure.note
    last = dolly.started[-1].trace()
    assert [lane.finish for lane in last.lanes.values()] == [FinishReason.CANCELLED]


def test_before_anything_is_known_there_is_a_figure_too():
    sweep = Sweep(FakeDolly(PLAIN), Request("Say something"), Turn())
    assert sweep.figure.checked
    assert sweep.figure.note == "Measuring: 0 of 30 answers."


def test_a_failure_ends_it():
    dolly = FakeDolly(PLAIN)
    dolly.fails = True
    sweep = swept(dolly)
    assert sweep.answers == 0
    assert sweep.ended
    assert "broke" in str(sweep.failure)


def test_the_page_measures_and_is_stopped(page, dolly):
    page.get_by_role("tab", name="Draft lengths").click()
    page.get_by_role("button", name="Measure every draft length").click()
    plot = page.locator("[data-plot=lengths]")
    plot.get_by_text("Fastest with a fixed length").wait_for()
    status_says(page, "Draft lengths measured")
    plot.get_by_text("As a table").click()
    plot.locator("tbody tr").nth(len(LENGTHS) - 1).wait_for()
    assert plot.locator("tbody tr").count() == len(LENGTHS)
    assert page.locator(".panes[data-source=record]").is_visible()  # the run shown stays

    dolly.pause = 0.02
    page.get_by_role("button", name="Measure every draft length").click()
    status_says(page, "Measuring")
    page.get_by_test_id("stop").click()
    plot.get_by_text("Stopped after").wait_for(timeout=3000)
    status_says(page, "Stopped")


def test_the_page_says_in_one_line_why_it_could_not_measure(page, dolly):
    dolly.fails = True
    page.get_by_role("tab", name="Draft lengths").click()
    page.get_by_role("button", name="Measure every draft length").click()
    page.get_by_test_id("notice").filter(has_text="RuntimeError the <b>engine</b> broke").wait_for()
    status_says(page, "Failed")
