"""The engine whose models are in replicas, here in threads of this process."""

import asyncio
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from unittest.mock import MagicMock, Mock

import pytest
import ray
import ray.serve
from ray.serve.exceptions import BackPressureError

from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.events import FinishReason, Step
from pipeline.environment import MemoryUse
from pipeline.errors import UserError
from pipeline.models.choice import Choice
from pipeline.progress import Progress
from pipeline.request import Request
from pipeline.trace.reader import parse_trace
from pipeline.trace.recording import Update
from serving import replica, replicas
from serving.cluster import Cluster, _description, _Stream
from serving.cores import Cores
from serving.replica import Description, Replica
from serving.replicas import Replicas
from tests.fake_dolly import PAIR, Everything, FakeDolly
from tests.served import PLAIN
from tests.waiting import wait_until
from ui.chat.errors import chat_error
from ui.run.turn import Turn
from ui.session import Session

REQUEST = Request("Say something", max_new_tokens=12)
LONG = Request("Say something", max_new_tokens=2000)
LOST = UserError("replica", "lost", "its process ended; run it again")
FULL = UserError("queue", "full", "every replica is busy; try again later")
ABOUT = Description({"name": "fake"}, context_length=100)


class Streamed:
    """What a replica streams, through pickles and a loop of its own as Ray does it."""

    def __init__(self, server, request, mode, memory):
        self._arrived = SimpleQueue()
        self._loop = asyncio.new_event_loop()
        given = pickle.loads(pickle.dumps((request, mode, memory)))
        self._task = self._loop.create_task(self._listen(server.run(*given)))
        threading.Thread(target=self._work, daemon=True).start()

    def __iter__(self):
        while True:
            message = pickle.loads(self._arrived.get())
            if message is None:
                return
            if isinstance(message, BaseException):
                raise message
            yield message

    def cancel(self):
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._task.cancel)

    def break_off(self):
        """As if its process were killed."""
        self._arrived.put(pickle.dumps(LOST))

    def _work(self):
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        self._arrived.put(pickle.dumps(None))

    async def _listen(self, messages):
        try:
            async for message in messages:
                self._arrived.put(pickle.dumps(message))
        except Exception as error:
            self._arrived.put(pickle.dumps(error))


class Served:
    """An engine with one replica, whose models are `dolly`."""

    def __init__(self, dolly, monkeypatch):
        self.dolly, self.streams = dolly, []
        monkeypatch.setattr(replica, "claim", lambda size: Pinned((0,), None))
        self.server = Replica(Choice(PAIR, Everything()), 1, lambda choice: dolly)
        dolly.started.clear()
        description = pickle.loads(pickle.dumps(described(self.server)))
        self.engine = Replicas(PAIR, dolly, description, self._call)

    def _call(self, *asked):
        self.streams.append(Streamed(self.server, *asked))
        return self.streams[-1]


def described(server):
    """What a replica says of itself; in a thread, since a browser's loop runs in the tests' own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, server.describe()).result()


class Pinned(Cores):
    def pin(self):
        pass


@pytest.fixture
def served(monkeypatch):
    dolly = FakeDolly(PLAIN)
    dolly.context_length = 100
    return Served(dolly, monkeypatch)


def timeless(trace):
    """Without the seconds, which no two runs share."""
    lanes = {
        name: (
            lane.text,
            lane.finish,
            [(token.id, token.text, token.origin, token.step) for token in lane.tokens],
            [(step.drafted, step.accepted, step.target_top, step.draft_top) for step in lane.steps],
        )
        for name, lane in trace.lanes.items()
    }
    return lanes, trace.pieces, trace.request, trace.prompt_tokens, trace.pair


STOPPING = Request("Say something", max_new_tokens=20, stop=("word1",), logprobs=2)


@pytest.mark.parametrize("request_", [REQUEST, STOPPING])
@pytest.mark.parametrize("mode", ["race", "sequential", "autoregressive", "speculative"])
def test_a_trace_from_a_replica_is_that_of_the_models(served, mode, request_):
    run = served.engine.start(request_, mode)
    updates = [update for update in run if isinstance(update, Update)]
    there = served.dolly.started[-1].trace()
    here = run.trace()
    assert here.finished
    assert (here.lanes, here.pieces) == (there.lanes, there.pieces)
    assert timeless(here) == timeless(FakeDolly(PLAIN).start(request_, mode).finish())
    assert [token for update in updates for token in update.tokens]
    assert here.environment["replica_cores"] == "0"
    assert parse_trace(here.to_json()) == here
    steps = [update.event for update in updates if isinstance(update.event, Step)]
    assert served.engine.token_bytes(3) == PLAIN[3].encode()
    if request_.logprobs:
        assert all(len(step.logprobs) == len(step.tokens) for step in steps)
        assert all(len(each.top) == 2 for step in steps for each in step.logprobs)


def test_what_a_replica_prepares_is_reported_and_then_the_models_are_its_own(served):
    served.dolly.stages = (Progress("Preparing the stateful cache"),)
    run = served.engine.start(replace(REQUEST, kv_cache="stateful"))
    stages = [update for update in run if isinstance(update, Progress)]
    assert stages == [*served.dolly.stages]
    assert run.trace().pair == served.dolly.last_trace().pair
    assert run.trace().pair["kv_cache"] == "stateful"


def test_no_replica_is_asked_before_the_run_is_iterated_nor_what_cannot_be_answered(served):
    run = served.engine.start(REQUEST)
    assert set(run.trace().lanes) == {"autoregressive", "speculative"}
    assert run.trace().prompt_tokens == (1, 2)
    run.close()
    assert run.trace().autoregressive.finish is FinishReason.CANCELLED
    with pytest.raises(UserError, match="mode: “both”"):
        served.engine.start(REQUEST, "both")
    served.engine._context_length = 2
    with pytest.raises(UserError, match="prompt tokens: 2"):
        served.engine.start(REQUEST)
    assert not served.streams


def test_whoever_leaves_frees_the_replica_for_the_next(served):
    served.dolly.pause = 0.01
    with closing(iter(served.engine.start(LONG))) as updates:
        assert any(updates)
    wait_until(lambda: served.dolly.last_trace().speculative.finish)
    assert served.dolly.last_trace().speculative.finish is FinishReason.CANCELLED
    served.dolly.pause = 0.0
    run = served.engine.start(REQUEST)
    assert [*run]
    assert run.trace().finished


def test_no_two_runs_compute_at_once_in_a_replica(served):
    served.dolly.goes_on.clear()
    first = iter(served.engine.start(LONG))
    assert next(first) is None  # it waits for its first token
    second = iter(served.engine.start(REQUEST))
    assert next(second) is None
    assert len(served.dolly.started) == 1  # the second is not even prepared
    first.close()
    served.dolly.goes_on.set()
    assert any(second)
    wait_until(lambda: len(served.dolly.started) == 2)
    second.close()


def test_a_replica_that_is_lost_is_one_line_and_the_visitor_can_run_again(served):
    served.dolly.pause = 0.01
    session = Session()
    racing = session.race(served.engine, LONG, Turn())
    next(racing)
    wait_until(lambda: served.streams)
    served.streams[0].break_off()
    *_, last = racing
    assert last.notice == str(LOST)
    assert last.status.state == "error"
    served.dolly.pause = 0.0
    *_, last = session.race(served.engine, REQUEST, Turn())
    assert "identical text" in last.status.line


@pytest.mark.parametrize(("error", "status"), [(FULL, 429), (LOST, 503)])
def test_the_chat_api_answers_with_the_status_of_its_kind(error, status):
    refusal = chat_error(error)
    assert (refusal.status, refusal.message) == (status, str(error))


def test_what_went_wrong_in_a_replica_is_raised_here(served):
    served.dolly.fails = True
    run = served.engine.start(REQUEST)
    with pytest.raises(RuntimeError, match="broke"):
        list(run)
    assert run.trace().speculative.finish is FinishReason.ERROR


def test_earlier_answers_go_to_the_replica_with_the_drafter_that_copies_them(served):
    memory, earlier = AnswerMemory(), FakeDolly(PLAIN).start(LONG).finish()
    memory.add([*earlier.prompt_tokens, *(token.id for token in earlier.speculative.tokens)])
    for drafter, remembered in (("hybrid", False), ("memory", True)):
        run = served.engine.start(
            replace(REQUEST, drafter=drafter, max_new_tokens=60), "race", memory
        )
        list(run)
        assert bool(run.trace().speculative.remembered) == remembered


def test_a_replica_has_a_thread_for_each_core_and_has_raced_before_its_first_visitor(monkeypatch):
    loaded, dolly = [], FakeDolly(PLAIN)
    monkeypatch.setattr(replica, "claim", lambda size: Pinned(tuple(range(size)), None))
    Replica(Choice(PAIR, Everything(), threads=0), 3, lambda choice: loaded.append(choice) or dolly)
    assert [choice.threads for choice in loaded] == [3]
    (trace,) = [run.trace() for run in dolly.started]
    assert trace.finished
    assert {"autoregressive", "speculative"} == {*trace.lanes}


def test_a_replica_that_cannot_load_its_pair_says_why_and_refuses_every_run(monkeypatch):
    def load(choice):
        raise UserError("model", "x", "choose another")

    monkeypatch.setattr(replica, "claim", lambda size: Pinned((0,), None))
    broken = Replica(Choice(PAIR, Everything()), 1, load)
    assert str(described(broken)) == "model: “x” — choose another."
    engine = Replicas(PAIR, FakeDolly(PLAIN), ABOUT, partial(Streamed, broken))
    with pytest.raises(UserError, match="model: “x” — choose another"):
        list(engine.start(REQUEST))


def test_every_replica_describes_itself_before_the_pair_counts_as_loaded():
    handle = Mock()
    results = handle.broadcast.return_value.results
    results.side_effect = [[ABOUT], [ABOUT, ABOUT]]  # a handle may know only one replica at first
    assert _description(handle, 2) == ABOUT
    results.side_effect = [[ABOUT, UserError("model", "x", "choose another")]]
    with pytest.raises(UserError, match="choose another"):
        _description(handle, 2)
    handle.broadcast.assert_called_with("describe")


def test_where_every_replica_is_busy_the_line_is_told_and_the_run_ends_in_its_trace(served):
    """Cancelling a Ray response that has failed raises the failure again."""

    full = BackPressureError(num_queued_requests=1, max_queued_requests=1)
    response = MagicMock()
    response.__iter__.side_effect = response.cancel.side_effect = full
    for call in (Mock(side_effect=FULL), lambda *asked: _Stream(response)):
        served.engine._call = call
        run = served.engine.start(REQUEST)
        with pytest.raises(UserError, match="every replica is busy"):
            list(run)
        assert run.trace().speculative.finish is FinishReason.ERROR
        *_, last = Session().race(served.engine, REQUEST, Turn())
        assert last.notice == str(FULL)


def test_the_memory_of_a_replica_is_seen_here_until_it_is_lost(served, monkeypatch):
    assert served.engine.memory_uses() == ()
    served.dolly.memory = (MemoryUse("the process", 9, 10, "Choose a smaller pair"),)
    for _ in range(2):
        list(served.engine.start(REQUEST))
        assert served.engine.memory_uses() == served.dolly.memory
    with monkeypatch.context() as patch:
        patch.setattr(replicas, "_KEPT", -1.0)  # as if its last report were long ago
        assert served.engine.memory_uses() == ()
    served.dolly.pause = 0.01
    updates = iter(served.engine.start(LONG))
    assert any(updates)
    assert served.engine.memory_uses() == served.dolly.memory
    served.streams[-1].break_off()
    with pytest.raises(UserError, match="its process ended"):
        list(updates)
    assert served.engine.memory_uses() == ()


@pytest.fixture
def fake_ray(monkeypatch):
    """Ray without processes: what was asked of `init`, and a cluster of 64 CPUs in four machines,
    and one that has left.
    """
    asked = []
    monkeypatch.setattr(os, "environ", {**os.environ, "RAY_ADDRESS": "elsewhere:6379"})
    monkeypatch.setattr(ray, "init", lambda address=None, **_: asked.append(address))
    sizes = (8.0, 8.0, 16.0, 32.0, 64.0)
    nodes = [{"Resources": {"CPU": size}, "Alive": size < 64} for size in sizes]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    monkeypatch.setattr(ray.serve, "start", lambda **_: None)
    return asked


def test_without_an_address_ray_starts_here_whatever_the_environment_says(fake_ray):
    Cluster(2)
    assert fake_ray == ["local"]


def test_an_address_that_ray_cannot_read_is_one_line(fake_ray, monkeypatch):
    def init(address, **_):
        raise ValueError(f"Did not find\n{address}")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(UserError, match=r"^ray address: “no:such:one” — .*Did not find no:such"):
        Cluster(2, "no:such:one")


FEW = r"of \d+ cores each are too many for 8 and 8 and 16 and 32 cores; choose fewer, or"


@pytest.mark.parametrize(
    ("count", "threads", "line"),
    [
        *((count, 0, f"cores: {each} —") for count, each in ((1, 32), (2, 16), (3, 16), (9, 6))),
        (64, 0, "cores: 1 —"),
        (65, 0, FEW),
        (2, 32, FEW),
    ],
)
def test_the_cores_of_a_replica_are_those_of_one_machine(
    fake_ray, monkeypatch, count, threads, line
):
    def deploy(self, choice, cores):
        raise UserError("cores", cores, "enough")

    monkeypatch.setattr(Cluster, "_deploy", deploy)
    with pytest.raises(UserError, match=line):
        Cluster(count, "head:6379").load(Choice(PAIR, Everything(), threads=threads))
