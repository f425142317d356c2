"""The load run: each of its parts, at a tiny size; and what is broken is counted as a failure."""

import json
import threading
from contextlib import closing
from dataclasses import replace

import httpx
import pytest

from lab.load import __main__ as load
from lab.load import calls, conversions, idle, memory, parts, traces, visitors
from lab.load.calls import Call, Reply
from lab.load.conversions import Outcome
from lab.load.parts import Finding
from lab.load.visitor import Visitor
from lab.load.visitors import Visit
from lab.saved import save_parts
from pipeline.request import Request
from tests.fake_dolly import PAIR, FakeDolly, loader_of
from tests.served import PLAIN, served_page
from tests.tiny import tiny_folder
from tests.traces import ran
from tests.waiting import wait_until
from ui.page import Page
from ui.run.recorded import recorded


@pytest.fixture(scope="module")
def pair():
    return str(tiny_folder())


# --- visitors -------------------------------------------------------------------------------------


def test_visitors_get_their_own_answers_and_the_delay_is_by_rank(tmp_path, pair):
    found = visitors.measure(tmp_path, pair, count=10, places=9)
    outcomes, delays = (found.figures[n] for n in ("outcomes", "median_first_token_s_by_rank"))
    assert found.failures == ()
    assert sum(outcomes.values()) == 10
    assert outcomes["answered"] > 0
    assert outcomes["closed its tab"] == 1
    assert delays
    assert all(0 <= int(rank) < 9 and seconds > 0 for rank, seconds in delays.items())


def answered(place, instruction, first_token_s=0.5):
    """A visit at that second, and the text of its answer."""
    request = Request(instruction)
    trace = ran(max_new_tokens=5)
    trace = replace(trace, request=trace.request | {"instruction": instruction})
    visit = Visit(place, request, "answered", float(place), place, first_token_s, trace)
    return visit, {request: trace.autoregressive.text}


FIRST, TEXT = answered(0, "Who?")
SECOND, OTHER = answered(1, "Why?")
TEXTS = TEXT | OTHER


@pytest.mark.parametrize(
    ("visits", "line"),
    [
        ([replace(FIRST, trace=SECOND.trace), SECOND], "visitor 0 (Who?) got another answer: Why?"),
        ([FIRST, replace(SECOND, first_token_s=-1.0)], "visitor 1 raced before visitor 0"),
        ([FIRST, Visit(1, SECOND.request, "lost")], "visitor 1 (Why?) was lost: no answer"),
        ([FIRST, Visit(1, SECOND.request, "refused", line="Full")], "only 1 were admitted"),
        ([FIRST, Visit(1, SECOND.request, "refused")], "visitor 1 (Why?) was not refused in one"),
    ],
)
def test_a_visitor_mixed_up_lost_or_out_of_order_is_a_failure(visits, line):
    assert list(visitors.failures([FIRST, SECOND], TEXTS, places=4)) == []
    assert next(visitors.failures(visits, TEXTS, places=4)).startswith(line)


def test_another_text_than_the_targets_is_a_failure_and_two_that_one_look_saw_are_in_no_order():
    texts = TEXTS | {FIRST.request: "something else"}
    (line,) = visitors.failures([FIRST, SECOND], texts, places=4)
    assert line.startswith("visitor 0")
    seen = [replace(FIRST, first_token_s=1.7), replace(SECOND, first_token_s=0.7)]
    assert list(visitors.failures(seen, TEXTS, places=4)) == []


class FakeRace:
    """A race that a test begins and ends."""

    def __init__(self, rank=None, error=None):
        self.rank, self.error = rank, error
        self.begun, self.ended = False, error is not None
        self.stopped = threading.Event()

    def stop(self):
        self.stopped.set()

    def trace(self):
        if self.error:
            raise self.error
        return FIRST.trace


class FakeVisitor:
    """One whose race is that of the test."""

    def __init__(self, race=None):
        self._race = race

    def race(self, request):
        return self._race

    def close(self):
        pass


def guest(race, leaving=None):
    """One that has arrived, its visit, and whether it got a place."""
    found = visitors.Guest(FakeVisitor(race), FIRST.request)
    return found, found.visit, found.arrive(0, leaving)


def test_a_first_token_is_timed_by_the_look_that_sees_it():
    one, visit, admitted = guest(race := FakeRace(rank=3))
    assert admitted
    assert not one.look(visit.arrived_s + 1)
    race.begun = True
    assert not one.look(visit.arrived_s + 2)
    race.ended = True
    assert one.look(visit.arrived_s + 3)
    assert (visit.outcome, visit.rank) == ("answered", 3)
    assert visit.first_token_s == pytest.approx(2)


def test_one_leaves_its_race_with_the_first_token_and_one_the_queue_after_a_while():
    one, visit, _ = guest(race := FakeRace(rank=3), "racing")
    assert not one.look(visit.arrived_s + 1)
    race.begun = True
    assert one.look(visit.arrived_s + 2)
    assert visit.outcome == "left its race"
    assert race.stopped.is_set()

    one, visit, _ = guest(race := FakeRace(rank=3), "waiting")
    assert not one.look(visit.arrived_s + 0.01)
    assert one.look(visit.arrived_s + 1)
    assert visit.outcome == "left the queue"
    assert race.stopped.is_set()


def test_one_who_is_refused_has_no_place_to_leave():
    one, visit, admitted = guest(FakeRace(error=ValueError("Queue is full")), "waiting")
    assert not admitted
    assert one.look(visit.arrived_s + 1)
    assert visit.outcome == "refused"


def test_a_visitor_leaves_its_race_while_others_still_come(monkeypatch):
    races = [FakeRace(rank=number) for number in range(6)]
    coming = iter(races)

    class Coming(FakeVisitor):
        def race(self, request):
            race = next(coming)
            if race is races[5]:  # the fifth visitor leaves before the sixth has arrived
                left.append(races[4].stopped.wait(5))
                for each in races:
                    each.ended = True
            race.begun = True
            return race

    left = []
    monkeypatch.setattr(visitors, "Visitor", lambda url: Coming())
    visits = visitors.come("http://nowhere", count=6)
    assert left == [True]
    assert [visit.outcome for visit in visits].count("answered") == 5


def test_delays_are_medians_by_the_place_in_the_queue():
    seen = [(2, 3.0), (None, 0.1), (0, 1.0), (2, 5.0), (1, None)]
    visits = [Visit(0, FIRST.request, "answered", 0.0, *each) for each in seen]
    assert visitors.delays(visits) == {"0": 1.0, "2": 4.0}


# --- memory ---------------------------------------------------------------------------------------


def test_the_memory_is_read_after_so_many_races_on_the_page(tmp_path, pair):
    found = memory.measure(tmp_path, pair, [1, 3])
    megabytes = found.figures["resident_mb"]
    assert [*megabytes] == [1, 3]
    assert all(value > 50 for value in megabytes.values())


def test_the_server_knows_when_a_tab_is_open_and_when_it_is_closed():
    """In Gradio, a session is closed when its heartbeat ends; its state is then deleted."""
    page = Page(loader_of(FakeDolly(PLAIN), PAIR))
    with served_page(page) as url:
        sessions = page.blocks.app.state_holder.session_data
        with closing(Visitor(url, page=True)) as tab:
            tab.press("Run both", {"Instruction": "Why?"}).wait()
            (state,) = sessions.values()
            assert not state.is_closed
        wait_until(lambda: state.is_closed)


def test_memory_that_grows_is_a_failure_and_at_first_it_may():
    assert [*memory.failures({100: 300.0, 500: 400.0, 1000: 401.0})] == []
    (line,) = memory.failures({100: 300.0, 500: 400.0, 1000: 450.0})
    assert line == "the memory grows by 10.0 MB per 100 races, more than 1.0"


# --- calls ----------------------------------------------------------------------------------------


def test_whatever_is_called_gets_one_line(tmp_path, pair):
    found = calls.measure(tmp_path, pair, 150)
    assert found.failures == ()
    assert sum(found.figures["kinds"].values()) == 150


def test_the_same_seed_makes_the_same_calls(url):
    config = httpx.get(f"{url}config").json()

    def bodies(seed):
        every = calls.calls(config, "fake", 200, seed)
        return [(call.path, call.body) for call in every]

    assert bodies(1) == bodies(1)
    assert bodies(1) != bodies(2)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"seconds": 2.5}, "took 2.5 s"),
        ({"status": 500, "text": "Internal Server Error"}, "got status 500"),
        ({"text": '{"detail": "Traceback (most recent call last)"}'}, "is a traceback"),
        ({"logged": "Traceback (most recent call last)\n  x\n"}, "is a traceback"),
        ({"logged": "one\ntwo\n"}, "is more than a line in the log"),
        ({"text": '{"error": "one\\ntwo"}'}, "got more than a line"),
        ({"text": 'event: error\ndata: {"error": "one\\ntwo"}\n\n'}, "got more than a line"),
    ],
)
def test_a_slow_call_a_traceback_or_more_than_a_line_is_a_failure(change, line):
    good = Reply(Call("chat", "POST", "/there"), 400, '{"detail": "one"}', 0.1, "one\n")
    assert list(calls.failures(good)) == []
    (failure,) = calls.failures(replace(good, **change))
    assert line in failure


# --- idle clients ---------------------------------------------------------------------------------


def test_clients_that_do_not_read_or_send_hold_nobody_up(tmp_path, pair):
    found = idle.measure(tmp_path, pair, 2, 3)
    assert found.failures == ()
    assert (found.figures["unread_streams"], found.figures["half_bodies"]) == (2, 3)
    assert 0 < found.figures["next_answer_s"] < idle.LONGEST


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"seconds": 49.0}, "the next answer took 49.0 s, more than 25"),
        ({"status": 429}, "the next answer has status 429"),
        ({"log": "Traceback (most recent call last)\n"}, "a traceback: 'Traceback"),
    ],
)
def test_an_answer_that_is_late_or_refused_and_a_traceback_are_failures(change, line):
    good = {"seconds": 1.0, "status": 200, "log": "one\ntwo\n"}
    assert list(idle.failures(**good)) == []
    (failure,) = idle.failures(**good | change)
    assert failure.startswith(line)


# --- traces ---------------------------------------------------------------------------------------


def test_mutants_of_a_trace_are_opened_or_refused_and_what_is_mutated_opens(tmp_path):
    (tmp_path / "whole.json").write_text(recorded().to_json())
    assert traces.opened(tmp_path / "whole.json") == ""
    found = traces.measure(tmp_path, 30)
    assert found.failures == ()
    assert found.figures["opened"] + found.figures["refused"] == 30
    assert [*traces.texts(5)] == [*traces.texts(5)]


def test_a_reader_that_fails_is_a_failure(tmp_path):
    def dividing(file):
        return str(1 / 0)

    found = traces.measure(tmp_path, 2, dividing)
    assert found.failures == tuple(
        f"mutant {number}: ZeroDivisionError division by zero" for number in range(2)
    )
    assert len(traces.measure(tmp_path, 2, lambda file: "one\ntwo").failures) == 2


# --- conversions ----------------------------------------------------------------------------------


def test_conversions_that_go_wrong_leave_nothing_and_the_next_works(tmp_path):
    """Of each kind, one that is quick; `tests.test_store` has two at once."""
    pytest.importorskip("torch")
    found = conversions.measure(tmp_path, ["a read-only cache", "killed: exporting"])
    assert found.failures == ()
    read_only, killed = found.figures["cases"].values()
    assert read_only["status"] == 2
    assert "Read-only file system" in read_only["line"]
    assert killed["status"] is None


GOOD = Outcome(2, "disk: full — free space.", (), 0, (), True)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"status": 1}, "exit status 1, not 2: disk: full — free space."),
        ({"status": 0}, "exit status 0, not 2: disk: full — free space."),
        ({"status": None}, "exit status None, not 2: disk: full — free space."),
        ({"line": "some warning"}, "the last line does not say why: some warning"),
        ({"line": "Traceback (most recent call last)"}, "a traceback"),
        ({"left": (".half",)}, ".half stayed"),
        ({"next_status": 2}, "the next run failed with status 2"),
        ({"works": False}, "the next run failed with status 0"),
        ({"next_left": (".half",)}, ".half stayed after the next run"),
    ],
)
def test_a_conversion_that_leaves_something_or_spoils_the_next_is_a_failure(change, line):
    assert list(conversions.failures(GOOD, 2)) == []
    assert list(conversions.failures(replace(GOOD, **change), 2)) == [line]


def test_a_killed_conversion_may_leave_what_the_next_deletes_but_must_have_been_killed():
    killed = replace(GOOD, status=None, left=(".half",), line="Traceback (most recent call last)")
    assert list(conversions.failures(killed, None)) == []
    assert list(conversions.failures(replace(killed, next_left=(".half",)), None)) != []
    (line,) = conversions.failures(replace(GOOD, status=0, line=""), None)
    assert line == "exit status 0, it was not killed: "


# --- the command ----------------------------------------------------------------------------------


def test_a_failure_is_printed_and_is_the_exit_status(monkeypatch, capsys):
    results = iter([Finding({"mutants": 1}, ("mutant 0: broke",)), Finding({"mutants": 1})])
    monkeypatch.setattr(traces, "measure", lambda work, count: next(results))
    assert load.main(["--only", "traces"]) == 1
    assert "traces FAILED: mutant 0: broke" in capsys.readouterr().out
    assert load.main(["--only", "traces"]) == 0


def test_a_part_that_raises_is_a_failure_and_what_was_found_before_is_kept():
    def raising():
        yield Finding({"calls": 5})
        raise RuntimeError("app.py is not ready\nfor a reason")

    results = parts.run({"visitors": lambda: [Finding({"visitors": 3})], "calls": raising})
    assert results["visitors"]["visitors"] == 3
    assert results["calls"]["calls"] == 5
    assert results["calls"]["failures"] == ["RuntimeError: app.py is not ready"]


@pytest.mark.parametrize("races", [["3"], ["3", "3"], ["0", "3"]])
def test_races_from_which_no_growth_follows_are_refused_in_one_line(monkeypatch, capsys, races):
    monkeypatch.setattr(load, "run", lambda parts: pytest.fail("it ran"))
    assert load.main(["--races", *races]) == 2
    said = capsys.readouterr().err
    assert said.startswith("races: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "saved"),
    [
        ([], [*load.PARTS]),
        (["--only", "calls"], ["calls"]),
        (["--races", "3", "6"], [part for part in load.PARTS if part != "memory"]),
        (["--only", "memory", "traces", "--pair", "other"], ["traces"]),
        (["--only", "memory", "--pair", "other"], []),
    ],
)
def test_each_part_that_ran_with_its_default_sizes_is_saved(monkeypatch, capsys, arguments, saved):
    kept = []
    monkeypatch.setattr(load, "save_parts", lambda name, results: kept.extend(results))
    monkeypatch.setattr(load, "run", lambda parts: {part: {"failures": []} for part in parts})
    assert load.main(arguments) == 0
    assert kept == saved
    shown = [part for part in load.PARTS if part in arguments] or [*load.PARTS]
    assert capsys.readouterr().err.count("not saved") == len(shown) - len(saved)


def test_a_part_is_saved_with_its_own_date_and_machine_and_the_others_stay(tmp_path):
    path = save_parts("load", {"calls": {"calls": 1}, "idle": {"seconds": 1}}, tmp_path)
    before = json.loads(path.read_text())
    path.write_text(json.dumps(before | {"calls": {"created": "before"}}))
    save_parts("load", {"idle": {"seconds": 2}}, tmp_path)
    after = json.loads(path.read_text())
    assert after["calls"] == {"created": "before"}
    assert after["idle"]["seconds"] == 2
    assert {"created", "environment"} <= {*after["idle"]}
