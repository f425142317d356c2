"""Replicas on Ray as `app.py` starts them: two of one core each, with tiny models.

They are the only processes of the tests that need two cores at once.
"""

from contextlib import ExitStack, closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import psutil
import pytest

from lab.load.server import Server, running
from lab.load.visitor import LONG, Visitor
from pipeline.dolly import Dolly
from pipeline.request import Request
from tests.tiny import tiny_folder
from tests.waiting import PATIENCE, wait_until

ASKED = ("Why is the sky blue?", "How many planets are there?")  # one for each replica
SHORT = Request("Why?", max_new_tokens=4)
REPLICAS, QUEUE = 2, 4


@pytest.fixture(scope="module")
def app():
    flags = ("--pair", str(tiny_folder()), "--replicas", str(REPLICAS))
    flags += ("--queue-size", str(QUEUE))
    with TemporaryDirectory() as folder, Server(*flags, temporary=Path(folder)) as server:
        server.wait_until_ready(3 * PATIENCE)
        yield server


@pytest.fixture(scope="module")
def visitors(app):
    with ExitStack() as stack:
        yield [stack.enter_context(closing(Visitor(app.url))) for _ in range(REPLICAS + QUEUE)]


def racing(visitors):
    """A long race in each replica."""
    races = [visitor.race(LONG) for visitor in visitors[:REPLICAS]]
    for race in races:
        race.wait_until_begun()
    return races


def test_two_race_at_once_on_cores_of_their_own_and_every_text_is_that_of_one_process(visitors):
    requests = [Request(asked, max_new_tokens=30) for asked in ASKED]
    visitor, *others = visitors[QUEUE - 1 :]
    held, traces = [], []
    for request, other in zip(requests, others, strict=True):  # each replica is held in turn
        held.append(other.race(LONG))
        held[-1].wait_until_begun()
        for race in held[:-1]:
            race.stop()
        traces.append(visitor.race(request).trace())
        assert not held[-1].ended  # both raced at once
    held[-1].stop()
    cores = {each.environment["replica"]: each.environment["replica_cores"] for each in traces}
    assert len(cores) == len({*cores.values()}) == REPLICAS
    assert all(trace.environment["threads"] == 1 for trace in traces)
    dolly = Dolly(tiny_folder())
    for trace, request in zip(traces, requests, strict=True):
        alone = dolly.start(request).finish()
        for name, lane in trace.lanes.items():
            assert lane.text == alone.lanes[name].text
            assert lane.finish == alone.lanes[name].finish


def listening(processes):
    """Where they wait for connections: whether from this machine alone, and the port."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # it may end meanwhile
            for each in process.net_connections("tcp"):
                if each.status == psutil.CONN_LISTEN:
                    yield each.laddr.ip.endswith(("127.0.0.1", "::1")), each.laddr.port


def test_nothing_of_ray_answers_from_beyond_this_machine(app):
    """Whoever reaches its ports could run code: they are the loopback's, or want a token."""
    ports = [*listening(app.processes)]
    assert any(loopback for loopback, _ in ports)
    for port in (port for loopback, port in ports if not loopback):
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary("/ray.serve.ASGIService/HandleRequest")
            with pytest.raises(grpc.RpcError) as refused:
                call(b"", timeout=PATIENCE)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_one_visitor_too_many_is_refused_politely(visitors):
    races = racing(visitors[QUEUE:])
    waiting = [visitor.race(SHORT) for visitor in visitors[:QUEUE]]
    assert "full" in visitors[0].race(SHORT).failure(PATIENCE)
    for race in races:
        race.stop()
    assert all(race.trace().finished for race in waiting)


def test_a_replica_that_is_killed_is_told_to_its_visitor_and_comes_back(app, visitors):
    before = app.replicas
    assert len(before) == REPLICAS
    races = racing(visitors)
    before[0].kill()
    wait_until(lambda: any(race.ended for race in races))
    lost, other = sorted(races, key=lambda race: not race.ended)
    assert lost.failure(PATIENCE) == "replica: “lost” — its process ended; run it again."
    assert not other.ended  # it goes on
    other.stop()
    assert visitors[races.index(lost)].race(SHORT).trace().finished
    wait_until(lambda: len({*app.replicas} - {before[0]}) == REPLICAS)


def test_terminated_it_ends_the_races_and_leaves_no_process(app, visitors):
    """The last test of these processes."""
    races, processes = racing(visitors), app.processes
    assert app.terminate() == 0
    finishes = {lane.finish for race in races for lane in race.trace().lanes.values()}
    assert finishes == {"cancelled"}
    wait_until(lambda: not any(map(running, processes)))
