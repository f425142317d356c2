"""Clients that do not read their stream, and clients that send half a body: others are answered all
the same.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx

from lab.load.parts import Finding
from lab.load.server import PATIENCE, ready
from pipeline.models.pairs import DEFAULT_PAIR

LONGEST = 25.0  # seconds of the next answer, for which five streams fill what a connection holds
_TOKENS = 2_000  # of a stream, which take longer than a connection holds
_PATH = "/v1/chat/completions"
_ASKED = {"messages": [{"role": "user", "content": "Tell a long story."}], "max_tokens": _TOKENS}


def opened(url: str, model: str, whole: bool) -> socket.socket:
    """A client that has asked for a stream, which it does not read; or has sent half of that."""
    body = json.dumps({"model": model, "stream": True, **_ASKED})
    length, body = len(body), body if whole else body[: len(body) // 2]
    address = httpx.URL(url)
    client = socket.create_connection((address.host, address.port or 80), PATIENCE)
    head = f"POST {_PATH} HTTP/1.1\r\nHost: {address.host}\r\nContent-Type: application/json\r\n"
    client.sendall(f"{head}Content-Length: {length}\r\n\r\n{body}".encode())
    return client


def failures(seconds: float, status: int, log: str) -> Iterator[str]:
    """A line for each defect.

    Args:
        seconds: until the next client was answered.
        status: of its answer.
        log: what the server wrote to its terminal.
    """
    if seconds > LONGEST:
        yield f"the next answer took {seconds:.1f} s, more than {LONGEST:g}"
    if status != httpx.codes.OK:
        yield f"the next answer has status {status}"
    if "Traceback" in log:
        yield f"a traceback: {log[-500:]!r}"


def measure(work: Path, pair: str = DEFAULT_PAIR, streams: int = 5, bodies: int = 10) -> Finding:
    """Has one client ask for a short answer behind so many of both kinds.

    Args:
        work: an empty folder.
        pair: a name of the registry, or a folder.
    """
    with (
        ready(work, pair) as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE) as client,
        ExitStack() as stack,
    ):
        model = client.get("/v1/models").json()["data"][0]["id"]
        asked = {"model": model, **_ASKED, "max_tokens": 5}
        client.post(_PATH, json=asked).raise_for_status()  # the first drafts take seconds
        for whole in [True] * streams + [False] * bodies:
            stack.enter_context(opened(server.url, model, whole))
        begun = time.perf_counter()
        status = client.post(_PATH, json=asked).status_code
        seconds = time.perf_counter() - begun
        stack.close()  # all of them leave at once
        client.get("/ready")
        found = [*failures(seconds, status, server.errors)]
    figures = {"unread_streams": streams, "half_bodies": bodies, "next_answer_s": round(seconds, 2)}
    return Finding(figures, tuple(found))
