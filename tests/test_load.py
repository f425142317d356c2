"""The load run: each of its parts, at a tiny size; and what is broken is counted as a failure."""

import os
from dataclasses import replace

import httpx
import pytest

from benchmarks import load
from benchmarks.loads import calls, conversions, memory, traces, visitors
from benchmarks.loads.calls import Call, Reply
from benchmarks.loads.conversions import Outcome
from benchmarks.loads.finding import Finding
from benchmarks.loads.visitors import Visit
from pipeline.request import Request
from tests.tiny import tiny_folder
from tests.traces import ran
from ui.run.recorded import recorded


@pytest.fixture(scope="module")
def pair():
    return str(tiny_folder())


# --- visitors -------------------------------------------------------------------------------------


def test_visitors_get_their_own_answers_and_a_third_of_them_leaves(tmp_path, pair):
    found = visitors.measure(tmp_path, pair, count=18, places=9)
    outcomes = found.figures["outcomes"]
    assert found.failures == ()
    assert sum(outcomes.values()) == 18
    assert outcomes["answered"] > 0
    assert outcomes["left"] >= 2


def answered(place, instruction, first_token_s=0.5):
    """A visit at that second, and the text of its answer."""
    request = Request(instruction)
    trace = ran(max_new_tokens=5)
    trace = replace(trace, request=trace.request | {"instruction": instruction})
    visit = Visit(place, request, "answered", float(place), first_token_s, trace)
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


def test_another_text_than_the_targets_is_a_failure():
    texts = TEXTS | {FIRST.request: "something else"}
    (line,) = visitors.failures([FIRST, SECOND], texts, places=4)
    assert line.startswith("visitor 0")


# --- memory ---------------------------------------------------------------------------------------


def test_the_memory_is_read_after_so_many_races_on_the_page(tmp_path, pair):
    found = memory.measure(tmp_path, pair, [1, 3])
    megabytes = found.figures["resident_mb"]
    assert [*megabytes] == [1, 3]
    assert all(value > 50 for value in megabytes.values())


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


# --- traces ---------------------------------------------------------------------------------------


def test_mutants_of_a_trace_are_opened_or_refused(tmp_path):
    found = traces.measure(tmp_path, 30)
    assert found.failures == ()
    assert found.figures["opened"] + found.figures["refused"] == 30
    assert [*traces.texts(5)] == [*traces.texts(5)]


def test_the_trace_that_is_mutated_opens(tmp_path):
    (tmp_path / "trace.json").write_text(recorded().to_json())
    assert traces.opened(tmp_path / "trace.json") == ""


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


def test_a_killed_conversion_may_leave_what_the_next_deletes():
    killed = replace(GOOD, status=None, left=(".half",), line="Traceback (most recent call last)")
    assert list(conversions.failures(killed, None)) == []
    assert list(conversions.failures(replace(killed, next_left=(".half",)), None)) != []


def test_a_conversion_that_ended_before_it_could_be_killed_is_a_failure(tmp_path):
    (line,) = conversions.failures(replace(GOOD, status=0, line=""), None)
    assert line == "exit status 0, it was not killed: "
    expected = {name: case.status for name, case in conversions.CASES.items()}
    assert {expected[f"killed: {stage}"] for stage in conversions.STAGES} == {None}
    assert {expected[f"a disk of {size} KiB"] for size in conversions.DISKS} == {2}
    assert expected["a read-only cache"] == 2
    assert expected["two at once"] == 0


def test_children_of_a_process_that_ends_while_they_are_read_are_none(monkeypatch):
    def ended(self):
        raise ProcessLookupError

    monkeypatch.setattr(conversions.Path, "read_text", ended)
    assert conversions._children(os.getpid()) == []


# --- the command ----------------------------------------------------------------------------------


def test_a_failure_is_printed_and_is_the_exit_status(monkeypatch, capsys):
    results = iter([Finding({"mutants": 1}, ("mutant 0: broke",)), Finding({"mutants": 1})])
    monkeypatch.setattr(traces, "measure", lambda work, count: next(results))
    assert load.main(["--only", "traces"]) == 1
    assert "traces FAILED: mutant 0: broke" in capsys.readouterr().out
    assert load.main(["--only", "traces"]) == 0
