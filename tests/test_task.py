"""Whatever takes long: it reports, and ends, fails or is stopped, and someone is shown which."""

import threading

import pytest

from pipeline.task import Task
from tests.waiting import wait_until
from ui.run.turn import Turn


def counting(until, go=None, closed=None):
    """Reports 1, 2, … and returns how many; waits for `go` after each; sets `closed` at last."""
    try:
        for number in range(1, until + 1):
            yield number
            if go:
                assert go.wait(5)
        return until
    finally:
        if closed:
            closed.set()


def started(work):
    task = Task(work, name="test")
    task.start()
    return task


def test_every_report_comes_once_and_in_order_and_then_the_result():
    task = started(counting(1000))
    assert [each for reports in task.updates(0.001) for each in reports] == [*range(1, 1001)]
    assert (task.latest, task.result(), task.failure) == (1000, 1000, None)
    assert not task.running


def test_stop_closes_the_work_after_its_next_report():
    go, closed = threading.Event(), threading.Event()
    task = started(counting(1000, go, closed))
    task.cancel()
    go.set()
    task.stop()
    assert closed.is_set()
    assert not task.running
    assert task.latest <= 2


def test_a_failure_is_kept_and_raised_to_whoever_wants_the_result():
    def failing():
        yield 1
        raise ValueError("broke")

    task = started(failing())
    with pytest.raises(ValueError, match="broke"):
        task.result()
    assert isinstance(task.failure, ValueError)
    assert task.latest == 1


@pytest.mark.parametrize("at_once", [1, 2])
def test_as_many_run_as_the_turn_lets_and_the_next_one_waits(at_once):
    turn, go = Turn(at_once), threading.Event()
    works = [started(turn.run(counting(2, go))) for _ in range(at_once)]
    assert [next(work.updates(0.1)) for work in works] == [[1]] * at_once
    assert turn.taken
    third = started(turn.run(counting(1)))
    assert next(third.updates(0.1)) == []  # an update comes also when nothing was reported
    go.set()
    wait_until(lambda: third.latest == 1)
    wait_until(lambda: not turn.taken)


def test_a_closed_turn_ends_its_work():
    turn, go, closed = Turn(), threading.Event(), threading.Event()
    first = started(turn.run(counting(1000, go, closed)))
    assert next(first.updates(0.1)) == [1]
    turn.close(0)
    go.set()
    first.stop()
    assert closed.wait(5)
    assert first.latest <= 2
    assert not list(turn.run(counting(1)))  # nor does it begin another


def test_the_turn_comes_in_the_order_of_arrival():
    turn, go, order = Turn(), threading.Event(), []

    def noting(name):
        order.append(name)
        yield name

    first = started(turn.run(counting(2, go)))
    assert next(first.updates(0.1)) == [1]
    others = []
    for name in ("b", "c", "d"):
        others.append(started(turn.run(noting(name))))
        wait_until(lambda: len(turn._places) == 1 + len(others))
    go.set()
    wait_until(lambda: not any(other.running for other in others))
    assert order == ["b", "c", "d"]


def test_waiting_work_that_is_stopped_never_begins():
    turn, go, begun = Turn(), threading.Event(), []

    def noting():
        begun.append(True)
        yield True

    first = started(turn.run(counting(1000, go)))
    assert next(first.updates(0.1)) == [1]
    waiting = started(turn.run(noting()))
    waiting.stop()  # returns although the first one goes on
    assert first.running
    assert not begun
    turn.close(0)
    go.set()
    first.stop()
