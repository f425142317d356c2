import pytest

from pipeline.decoding.events import FinishReason
from pipeline.request import Request
from tests.fake_dolly import FakeDolly

TEXTS = [f" w{i}" for i in range(12)]


def start(**wanted):
    return FakeDolly(TEXTS).start(Request("Say something", max_new_tokens=10, **wanted))


def test_finish_returns_the_trace_of_a_run_iterated_to_its_end():
    iterated = start()
    made: dict[str, list[int]] = {"autoregressive": [], "speculative": []}
    for update in iterated:
        made[update.lane] += [token.id for token in update.tokens]
    finished = start().finish()
    assert finished.finished
    for name, lane in iterated.trace().lanes.items():
        tokens = [token.id for token in finished.lanes[name].tokens]
        assert tokens == made[name] == [token.id for token in lane.tokens]
        assert len(tokens) == 10


def test_a_run_cancelled_before_it_began_finishes_at_once():
    run = start()
    run.cancel()
    trace = run.finish()
    assert {lane.finish for lane in trace.lanes.values()} == {FinishReason.CANCELLED}
    assert sum(len(lane.steps) for lane in trace.lanes.values()) == 0


def test_a_lane_that_fails_has_an_end_in_the_trace():
    dolly = FakeDolly(TEXTS)
    dolly.fails = True
    run = dolly.start(Request("Say something"))
    with pytest.raises(RuntimeError, match="broke"):
        run.finish()
    assert {lane.finish for lane in run.trace().lanes.values()} == {FinishReason.ERROR}
