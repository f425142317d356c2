"""Replicas on Ray as `app.py` starts them: two of one core each, with tiny models.

They are the only processes of the tests that need two cores at once; where there are fewer, these
tests are skipped.
"""

import json
import os
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import httpx
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from pipeline.dolly import Dolly
from pipeline.request import Request
from serving.server import Server, kill, running
from tests.tiny import tiny_folder
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")

ASKED = ("Why is the sky blue?", "How many planets are there?", "Name a colour.")
LONG = {"instruction": "Why?", "max_new_tokens": 400, "kv_cache": "uncached"}
DEATH_SECONDS = 5.0  # in which a visitor is told that the replica was lost: a claim


@pytest.fixture(scope="module")
def app():
    flags = ("--pair", str(tiny_folder()), "--replicas", "2", "--queue-size", "4")
    with TemporaryDirectory() as folder, Server(*flags, temporary=Path(folder)) as server:
        server.wait_until_ready(3 * PATIENCE)
        yield server


@pytest.fixture
def client(app):
    with closing(Client(app.url, verbose=False)) as client:
        yield client


def replica_of(trace):
    return trace["environment"]["replica"]


def test_two_race_at_once_on_cores_of_their_own_and_every_text_is_that_of_one_process(client):
    requests = [Request(asked, max_new_tokens=30) for asked in ASKED]
    jobs = [
        client.submit(each.instruction, max_new_tokens=30, api_name="/trace") for each in requests
    ]
    traces = [job.result() for job in jobs]
    dolly = Dolly(tiny_folder())
    for trace, request in zip(traces, requests, strict=True):
        alone = dolly.start(request).finish()
        for name, lane in trace["lanes"].items():
            assert lane["text"] == alone.lanes[name].text
            assert lane["finish"] == alone.lanes[name].finish
    cores = {replica_of(trace): trace["environment"]["replica_cores"] for trace in traces}
    assert len(cores) == 2
    assert len({*cores.values()}) == 2
    assert all(trace["environment"]["threads"] == 1 for trace in traces)


def listening(processes):
    """Where they wait for connections: whether from this machine alone, and the port."""
    theirs = {
        os.readlink(file)
        for pid in processes
        for file in Path(f"/proc/{pid}/fd").iterdir()
        if file.is_symlink()
    }
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in theirs:
                address, port = local.split(":")
                yield address.endswith("0100007F"), int(port, 16)


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


def test_whoever_leaves_frees_the_replica(client):
    jobs = [client.submit(**LONG, api_name="/race") for _ in range(2)]
    for job in jobs:
        next(iter(job))
        job.cancel()
    traces = [client.submit("Why?", max_new_tokens=4, api_name="/trace") for _ in range(2)]
    assert all(job.result()["lanes"]["speculative"]["finish"] for job in traces)


def test_one_visitor_too_many_is_refused_politely(app, client):
    jobs = [client.submit(**LONG, api_name="/race") for _ in range(2)]
    for job in jobs:
        next(iter(job))
    waiting = [client.submit("Why?", max_new_tokens=4, api_name="/trace") for _ in range(4)]
    wait_until(
        lambda: (
            httpx.post(f"{app.url}gradio_api/call/trace", json={"data": ["One more"]}).status_code
            == 503
        )
    )
    for job in jobs:
        job.cancel()
    assert all(job.result()["lanes"] for job in waiting)


def test_a_replica_that_is_killed_is_told_to_its_visitor_and_comes_back(app, client):
    before = app.replicas
    assert len(before) == 2
    jobs = [client.submit(**LONG, api_name="/race") for _ in range(2)]
    for job in jobs:
        next(iter(job))
    killed = time.monotonic()
    kill(before[0])
    wait_until(lambda: any(job.done() for job in jobs))
    assert time.monotonic() - killed < DEATH_SECONDS
    lost, other = sorted(jobs, key=lambda job: not job.done())
    with pytest.raises(AppError, match="replica: “lost” — its process ended; run it again"):
        lost.result()
    assert not other.done()  # it goes on
    other.cancel()
    assert client.predict("Why?", max_new_tokens=4, api_name="/trace")["lanes"]
    wait_until(lambda: len({*app.replicas} - {before[0]}) == 2)


def test_terminated_it_ends_the_races_and_leaves_no_process(app, client):
    job = client.submit(**LONG, api_name="/race")
    next(iter(job))
    replicas = app.processes
    assert app.terminate() == 0
    *_, last = job.outputs()
    lanes = json.loads(last)["trace"]["lanes"]
    assert {lane["finish"] for lane in lanes.values()} == {"cancelled"}
    wait_until(lambda: not any(map(running, replicas)))
