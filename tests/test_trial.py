"""The figures of the trial, on traces whose times are given, and what becomes of its findings."""

import json
import subprocess
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from types import SimpleNamespace

import pytest

from lab.load import trial
from lab.load.trial import Finding, growth, overlapping, overtaken, slowdown
from tests.traces import timed

STEP = 0.1  # seconds


def raced(replica, began, step=STEP):
    """A race in which each step takes so many seconds."""
    cost = {"draft_s": 0.0, "verify_s": step, "other_s": 0.0}
    trace = timed(dict.fromkeys(("autoregressive", "speculative"), lambda _: cost))
    environment = {"replica": replica, "replica_began": began}
    return replace(trace, environment=environment)


def seconds():
    """That such a race computes."""
    lanes = raced("a", 0.0).lanes.values()
    return sum(lane.prefill_s + STEP * len(lane.steps) for lane in lanes)


def test_races_overlap_where_one_began_before_the_other_had_computed_all():
    ends = seconds()
    after = raced("a", ends + 0.01)
    assert overlapping([raced("a", 0.0), after]) == 0
    assert overlapping([after, raced("a", 0.0), raced("b", 0.5)]) == 0
    assert overlapping([raced("a", 0.0), raced("a", ends - 0.01)]) == 1


def test_whoever_begins_well_before_one_who_came_earlier_has_overtaken():
    assert overtaken([raced("a", began) for began in (0.0, 0.1, 0.05, 2.0)]) == 0
    assert overtaken([raced("a", began) for began in (0.0, 5.0, 1.0, 6.0)]) == 1


def test_a_replica_is_compared_with_itself_alone():
    alone = [raced("a", 0.0, 0.1), raced("b", 0.0, 0.2)]
    together = [raced("a", 0.0, 0.11), raced("b", 0.0, 0.24)]
    assert slowdown(alone, together, "autoregressive") == pytest.approx((1.1 + 1.2) / 2)


@pytest.mark.parametrize(
    ("sizes", "more"), [([5, 5, 10, 10, 10, 10], 0.0), ([1, 1, 10, 10, 11, 11], 0.1), ([1], 0.0)]
)
def test_memory_grows_from_the_second_third_to_the_last(sizes, more):
    assert growth(sizes) == pytest.approx(more)


def test_what_was_found_before_a_step_failed_is_written(monkeypatch, tmp_path):
    @contextmanager
    def server(*flags):
        yield SimpleNamespace(url="")

    def starting(server):
        yield Finding("a claim", 1.0, "s", True)
        raise RuntimeError("app.py is not ready")

    monkeypatch.setattr(trial, "Server", server)
    monkeypatch.setattr(trial, "_starting", starting)
    output = tmp_path / "trial.json"
    assert trial.main(["--output", str(output)]) == 1
    written = json.loads(output.read_text())
    assert [each["claim"] for each in written["findings"]] == ["a claim"]
    assert "app.py is not ready" in written["failure"]


def test_a_tab_is_closed_where_the_trial_fails_before(monkeypatch):
    class Tab:
        stdout, killed = StringIO("begun\n"), False

        def __enter__(self):
            return self

        def __exit__(self, *_):
            assert self.killed  # or a process would be waited for, whose race goes on

        def kill(self):
            self.killed = True

    class Visitor:
        def race(self, request):
            return self

        def wait_until_begun(self):
            pass

        stop = wait_until_begun

        def failure(self, timeout):
            return ""

        def trace(self):
            return raced("a", 1e12)

    class Late(Visitor):
        def wait_until_begun(self):
            raise TimeoutError

    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: Tab())
    visitors = [Visitor(), Visitor(), Visitor()]
    steps = trial._leaving(SimpleNamespace(url=""), visitors)
    next(steps)
    visitors[0] = Late()
    with pytest.raises(TimeoutError):
        next(steps)
