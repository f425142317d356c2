"""The load run: each of its parts, at a tiny size; and what is broken is counted as a failure."""

import json
import sys
from contextlib import nullcontext
from dataclasses import replace
from threading import Event

import httpx
import pytest

from lab.load import __main__ as load
from lab.load import calls, conversions, idle, memory, parts, server, traces, visitors
from lab.load.calls import Call
from lab.load.conversions import Outcome
from lab.load.parts import Finding
from lab.load.visitors import Visit
from lab.saved import save_parts
from pipeline.request import Request
from tests.tiny import tiny_folder
from tests.traces import ran
from ui.run.recorded import recorded


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    with server.ready(
        tmp_path_factory.mktemp("load"), str(tiny_folder()), "--queue-size", "9"
    ) as each:
        yield each


@pytest.fixture
def measured(started, monkeypatch, tmp_path):
    """Measures a part with one server for all, of whose log calls make use: they come last."""

    def measure(part, **sizes):
        monkeypatch.setattr(part, "ready", lambda *_: nullcontext(started))
        return part.measure(tmp_path, str(tiny_folder()), **sizes)

    return measure


# --- visitors -------------------------------------------------------------------------------------


def test_visitors_get_their_own_answers_and_the_delay_is_by_rank(measured):
    found = measured(visitors, count=10, places=9)
    outcomes, delays = (found.figures[n] for n in ("outcomes", "median_first_token_s_by_rank"))
    assert found.failures == ()
    assert sum(outcomes.values()) == 10
    assert outcomes["answered"] > 0
    assert outcomes["closed its tab"] == 1
    assert delays
    assert all(0 <= int(rank) < 9 and seconds > 0 for rank, seconds in delays.items())


def answered(place, instruction):
    """A visit at that second, and the text of its answer."""
    request = Request(instruction)
    trace = ran(max_new_tokens=5)
    trace = replace(trace, request=trace.request | {"instruction": instruction})
    visit = Visit(request, "answered", float(place), place, 0.5, trace)
    return visit, {request: trace.autoregressive.text}


FIRST, TEXT = answered(0, "Who?")
SECOND, OTHER = answered(1, "Why?")


@pytest.mark.parametrize(
    ("visits", "line"),
    [
        ([replace(FIRST, trace=SECOND.trace), SECOND], "visitor 0 (Who?) got another answer: Why?"),
        ([FIRST, replace(SECOND, first_token_s=-1.0)], "1 raced before one who came earlier"),
        ([FIRST, Visit(SECOND.request, "lost", line="none")], "visitor 1 (Why?) was lost: none"),
        ([FIRST, Visit(SECOND.request, "refused", line="Full")], "only 1 were admitted"),
        ([FIRST, Visit(SECOND.request, "refused")], "visitor 1 (Why?) was not refused in one"),
    ],
)
def test_a_visitor_mixed_up_lost_or_out_of_order_is_a_failure(visits, line):
    texts = TEXT | OTHER
    assert list(visitors.failures([FIRST, SECOND], texts, places=4)) == []
    assert next(visitors.failures(visits, texts, places=4)).startswith(line)
    wrong = texts | {FIRST.request: "something else"}
    assert next(visitors.failures([FIRST, SECOND], wrong, places=4)).startswith("visitor 0")


class FakeRace:
    """A race that begins, or is refused, or waits in the queue without end."""

    asked, rank = 0.0, 3

    def __init__(self, begins=True, refusal=""):
        self.first_token_s, self.ended = (1.0 if begins else None), bool(refusal)
        self._refusal, self.stop = refusal, Event().set

    def wait_until_begun(self, timeout):
        if self.first_token_s is None and not self.ended:
            raise TimeoutError

    def trace(self):
        if self._refusal:
            raise RuntimeError(self._refusal)
        return FIRST.trace


@pytest.mark.parametrize(
    ("race", "leaving", "outcome"),
    [
        (FakeRace(), None, "answered"),
        (FakeRace(), "waiting", "answered"),  # it has not waited long enough to leave
        (FakeRace(), "racing", "left its race"),
        (FakeRace(begins=False), "waiting", "left the queue"),
        (FakeRace(begins=False), None, "lost"),
        (FakeRace(begins=False, refusal="Queue is full!"), "waiting", "refused"),
        (FakeRace(begins=False, refusal="Queue is full!"), "racing", "refused"),
        (FakeRace(refusal="replica: lost"), None, "lost"),
        (FakeRace(), "closing", "closed its tab"),
    ],
)
def test_a_visitor_leaves_its_race_or_the_queue_but_not_without_a_place(race, leaving, outcome):
    assert visitors.visit(FIRST.request, race, leaving).outcome == outcome


def test_delays_are_medians_by_the_place_in_the_queue():
    seen = [(2, 3.0), (None, 0.1), (0, 1.0), (2, 5.0), (1, None)]
    visits = [Visit(FIRST.request, "answered", 0.0, *each) for each in seen]
    assert visitors.delays(visits) == {"0": 1.0, "2": 4.0}


# --- memory, idle clients and calls ---------------------------------------------------------------


def test_the_memory_is_read_after_so_many_races_on_the_page(measured):
    found = measured(memory, counts=[1, 3])
    megabytes = found.figures["resident_mb"]
    assert [*megabytes] == [1, 3]
    assert all(value > 50 for value in megabytes.values())


def test_memory_that_grows_is_a_failure_and_at_first_it_may():
    assert [*memory.failures({100: 300.0, 500: 400.0, 1000: 401.0})] == []
    (line,) = memory.failures({100: 300.0, 500: 400.0, 1000: 450.0})
    assert line == "the memory grows by 10.0 MB per 100 races, more than 1.0"


def test_clients_that_do_not_read_or_send_hold_nobody_up(measured):
    found = measured(idle, streams=2, bodies=3)
    assert found.failures == ()
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


def test_whatever_is_called_gets_one_line_and_the_same_seed_makes_the_same_calls(started, measured):
    found = measured(calls, count=150)
    assert found.failures == ()
    assert sum(found.figures["kinds"].values()) == 150
    config = httpx.get(f"{started.url}config").json()
    one, same, other = (
        [(call.path, call.body) for call in calls.calls(config, "fake", 200, seed)]
        for seed in (1, 1, 2)
    )
    assert one == same != other


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"seconds": 2.5}, "took 2.5 s"),
        ({"status": 500, "text": "Internal Server Error"}, "got status 500"),
        ({"text": '{"detail": "Traceback (most recent call last)"}'}, "is a traceback"),
        ({"log": "Traceback (most recent call last)\n  x\n"}, "is a traceback"),
        ({"log": "one\ntwo\n"}, "is more than a line in the log"),
        ({"text": '{"error": "one\\ntwo"}'}, "got more than a line"),
        ({"text": 'event: error\ndata: {"error": "one\\ntwo"}\n\n'}, "got more than a line"),
    ],
)
def test_a_slow_call_a_traceback_or_more_than_a_line_is_a_failure(change, line):
    call = Call("chat", "POST", "/there")
    good = {"status": 400, "text": '{"detail": "one"}', "seconds": 0.1, "log": "one\n"}
    assert list(calls.failures(call, **good)) == []
    (failure,) = calls.failures(call, **good | change)
    assert line in failure


# --- traces ---------------------------------------------------------------------------------------


def test_mutants_of_a_trace_are_opened_or_refused_and_what_is_mutated_opens(tmp_path):
    (tmp_path / "whole.json").write_text(recorded().to_json())
    assert traces.opened(tmp_path / "whole.json") == ""
    found = traces.measure(tmp_path, 30)
    assert found.failures == ()
    assert found.figures["opened"] + found.figures["refused"] == 30


def test_a_reader_that_fails_is_a_failure(tmp_path):
    found = traces.measure(tmp_path, 2, lambda file: str(1 / 0))
    assert found.failures == tuple(
        f"mutant {number}: ZeroDivisionError division by zero" for number in range(2)
    )
    assert len(traces.measure(tmp_path, 2, lambda file: "one\ntwo").failures) == 2


# --- conversions ----------------------------------------------------------------------------------

CONVERT = """
import pathlib, shutil, sys, time
cache, ready = map(pathlib.Path, sys.argv[1:])
half = cache / ".half"
try:
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
except OSError as error:
    print(f"file: {half} — {error.strerror}.", file=sys.stderr)
    sys.exit(2)
print("exporting", file=sys.stderr, flush=True)
time.sleep(0.5)
shutil.copytree(ready, half, dirs_exist_ok=True, copy_function=shutil.copyfile)
half.rename(cache / "model")
"""


@pytest.fixture
def converting(monkeypatch):
    """What converts in no time, and as it should."""

    def command(checkpoint, cache):
        return [sys.executable, "-c", CONVERT, str(cache), str(tiny_folder() / "target")]

    monkeypatch.setattr(conversions, "_command", command)
    monkeypatch.setattr(conversions, "_write_checkpoint", lambda folder: None)


def test_conversions_that_go_wrong_leave_nothing_and_the_next_works(converting, tmp_path):
    """Of each kind, one; `tests.test_store` has real conversions."""
    found = conversions.measure(tmp_path, ["a read-only cache", "killed: exporting"])
    assert found.failures == ()
    read_only, killed = found.figures["cases"].values()
    assert read_only["status"] == 2
    assert "Read-only file system" in read_only["line"]
    assert (killed["status"], killed["left"]) == (None, (".half",))


GOOD = Outcome(2, "disk: full — free space.", (), 0, (), True)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"status": 1}, "exit status 1, not 2: disk: full — free space."),
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


def test_the_parts_that_ran_are_saved_and_a_failure_is_printed_and_is_the_exit_status(
    monkeypatch, capsys
):
    results, kept = iter([Finding({}, ("mutant 0: broke",)), Finding({"mutants": 1})]), []
    monkeypatch.setitem(load.PARTS, "traces", lambda work: next(results))
    monkeypatch.setattr(load, "save_parts", lambda name, results: kept.extend(results.items()))
    assert load.main(["--only", "traces"]) == 1
    assert "traces FAILED: mutant 0: broke" in capsys.readouterr().out
    assert load.main(["--only", "traces"]) == 0
    (_, failed), (name, whole) = kept
    assert failed["failures"] == ["mutant 0: broke"]
    assert (name, whole["mutants"], whole["failures"]) == ("traces", 1, [])


def test_a_part_that_raises_is_a_failure_and_what_was_found_before_is_kept():
    def raising():
        yield Finding({"calls": 5})
        raise RuntimeError("app.py is not ready\nfor a reason")

    result = parts.run("calls", raising())
    assert result["calls"] == 5
    assert result["failures"] == ["RuntimeError: app.py is not ready"]


def test_a_part_is_saved_with_its_own_date_and_machine_and_the_others_stay(tmp_path):
    path = save_parts("load", {"calls": {"calls": 1}, "idle": {"seconds": 1}}, tmp_path)
    before = json.loads(path.read_text())
    path.write_text(json.dumps(before | {"calls": {"created": "before"}}))
    save_parts("load", {"idle": {"seconds": 2}}, tmp_path)
    after = json.loads(path.read_text())
    assert after["calls"] == {"created": "before"}
    assert after["idle"]["seconds"] == 2
    assert {"created", "environment"} <= {*after["idle"]}
