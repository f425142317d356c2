"""The costs of forward passes: how they are measured, kept, and shown."""

import pytest

from pipeline.decoding.economics import AcceptanceStats, Costs, Measurement
from pipeline.progress import Progress
from pipeline.request import Request
from pipeline.runtime import pair
from pipeline.runtime.sequence import OVCausalLM
from tests.fake_dolly import FakeDolly, action, asked, loader_of
from tests.served import PLAIN
from tests.tiny import tiny
from ui.page import Page
from ui.run.turn import Turn
from ui.session import Session

COSTS_OF = Costs(0.001, (0.004,) * 9, switch=0.0005)
AUTO = Request("Why?", max_new_tokens=4, draft_length="auto")


@pytest.fixture
def spreads(monkeypatch):
    """Those of the next measurements, one after the other."""
    coming: list[float] = []
    monkeypatch.setattr(pair, "measure_costs", lambda *_: Measurement(COSTS_OF, coming.pop(0)))
    monkeypatch.setattr(tiny().models(), "measured", None)
    monkeypatch.setattr(tiny().models(), "stats", {})
    return coming


def prepared():
    """The stages of preparing a run by costs."""
    return [str(stage) for stage in tiny().prepare(AUTO)]


def test_a_disturbed_measurement_is_repeated_until_one_is_not(spreads):
    spreads += [0.9, 0.05, 0.01]
    first, again = prepared()
    assert first == "Measuring the costs of forward passes"
    assert again.startswith("Measuring the costs of forward passes again")
    assert (tiny().measured.spread, spreads) == (0.05, [0.01])
    assert prepared() == []  # it is kept


def test_one_that_stays_disturbed_is_measured_again_by_a_later_run(spreads, monkeypatch):
    """Not by every run, each of which would wait on a machine that is never idle."""
    spreads += [0.9, 0.5, 0.7, 0.02]
    assert len(prepared()) == 3
    assert (tiny().measured.spread, tiny().measured.disturbed) == (0.5, True)
    assert prepared() == []
    monkeypatch.setattr(pair, "RETRY_AFTER", 0.0)
    tiny().start(AUTO).finish()
    assert (tiny().measured.spread, spreads) == (0.02, [])


def test_a_run_that_needs_no_costs_measures_none(spreads):
    tiny().start(Request("Why?", max_new_tokens=4)).finish()
    tiny().start(AUTO, "autoregressive").finish()
    assert tiny().measured is None


def test_new_costs_replace_the_old_ones_and_leave_the_acceptance_rates():
    stats = AcceptanceStats(COSTS_OF)
    for _ in range(9):
        stats.update(0, 1, ())
    known = stats.by_position()
    stats.update_draft_cost(1, 0.003, 0.004, 1)
    learned = stats.costs
    stats.use_costs(Costs(0.001, (0.004,) * 9, switch=0.0005))
    assert stats.costs == learned
    other = Costs(0.002, (0.004,) * 9)
    stats.use_costs(other)
    assert (stats.costs, stats.by_position()) == (other.in_steps, known)


@pytest.mark.parametrize(("slow", "disturbed"), [(0, False), (1, False), (2, True), (3, True)])
def test_rounds_that_something_slows_are_seen_in_the_spread(slow, disturbed, monkeypatch):
    target, counts = tiny().models().target, list[int]()

    def timed(self, count):
        counts.append(count)
        return 3.0 if (len(counts) - 1) // 18 < slow else 1.0

    monkeypatch.setattr(OVCausalLM, "time_forward", timed)
    measured = pair.measure_costs(target, None)
    assert measured.disturbed == disturbed
    up = [count for size in range(1, 10) for count in (size, size)]
    assert counts[:36] == [*up, *reversed(up)]  # sizes in turn, and not always upwards


def test_waiting_for_another_forward_pass_does_not_count(monkeypatch):
    """The clock starts once the model's lock is held."""
    sequence, held = tiny().models().target.sequence(), list[bool]()
    lock = tiny().models().target.compiled.lock
    monkeypatch.setattr(
        "pipeline.runtime.sequence.perf_counter", lambda: held.append(lock.locked()) or 0.0
    )
    sequence.time_forward(1)
    assert held == [True, False]


# --- the page -------------------------------------------------------------------------------------


def statuses(changes):
    return [each.status.line for each in changes if each.status]


def test_a_visitor_sees_what_a_run_waits_for(monkeypatch):
    dolly = FakeDolly(PLAIN)
    dolly.stages = (Progress("Preparing the stateful cache"),)
    dolly.goes_on.clear()
    shown = []
    for changes in Session().race(dolly, Request("any", max_new_tokens=400), Turn()):
        shown.append(changes)
        if changes.status and changes.status.line.startswith("Preparing"):
            dolly.pause = 0.005
            dolly.goes_on.set()
    lines = statuses(shown)
    at = lines.index("Preparing the stateful cache…")
    assert lines[at + 1].startswith("Racing · ")


def test_the_page_shows_the_costs_of_its_pair_and_those_measured_again():
    dolly, loader = FakeDolly(PLAIN), loader_of(FakeDolly(PLAIN))
    list(loader.wait())
    shown = Page(loader).show_pair(Session())
    assert any("200.0 ms" in str(value) for value in shown.values())
    dolly.costs = Costs(0.123, (1.0,) * 9)
    for spread, said in ((0.04, "differ by 4 %"), (0.6, "something else used the processor")):
        dolly.spread = spread
        what = asked(dolly, Request("any"))
        *_, last = Session().act(action("measure-costs"), what, Turn())
        assert "123.0 ms" in last.views["costs"]
        assert said in last.views["costs"]
        assert ("something else" in last.views["costs"]) == (spread > 0.5)
        assert last.status.line == "Costs measured"


def test_a_measurement_waits_for_its_turn_and_can_be_stopped():
    session, turn = Session(), Turn()
    racing = turn.run(iter(FakeDolly(PLAIN).start(AUTO)))
    next(racing)
    what = asked(FakeDolly(PLAIN), Request("any"), turn.taken)
    measuring = session.act(action("measure-costs"), what, turn)
    assert next(measuring).status.line == "Waiting for another run to end"
    assert session.stop().status.line == "Stopped"
    racing.close()
