"""Valid and invalid calls: each gets one line, in a bounded time, and no traceback."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import httpx

from lab.load.mutants import STRANGE, at, mutated, mutated_text, paths
from lab.load.parts import Finding
from lab.load.server import PATIENCE, ready
from pipeline.models.pairs import DEFAULT_PAIR
from pipeline.request import Request

LONGEST = 2.0  # seconds of a call
_TIMEOUT = 10.0  # seconds after which a call is taken for one without an end
_TOKENS = 2
_REQUEST = Request("Why?", max_new_tokens=_TOKENS)
_ENDPOINTS = ("race", "trace", "status")
_API = "/gradio_api"
_ADDRESSES = (
    *("/", "/config", "/ready", "/nothing", "/v1/models", "/v1/chat/completions", "/theme.css"),
    *("/info", "/queue/status", "/queue/join", "/queue/data", "/call/trace", "/call/trace/1"),
    *("/upload", "/upload_progress", "/file=x", "/file=/etc/passwd", "/proxy=http://127.0.0.1:9/"),
    *("/run/trace", "/api/trace", "/cancel", "/reset", "/component_server", "/stream/a/b/c"),
    *("/startup-events", "/app_id", "/token", "/login", "/dev/reload", "/static/x", "/assets/x"),
)
_METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS")
_SIMPLE = 20  # of the strange values, those that are no more than a number or a short text
_LINES = ("error", "detail", "message")  # the fields of an answer that hold an error


@dataclass(frozen=True, slots=True)
class Call:
    """A request by HTTP.

    Attributes:
        then: the address of its answer, given the reply, where that comes later.
    """

    kind: str
    method: str
    path: str
    body: str = ""
    files: Mapping[str, Any] | None = None
    then: Callable[[Any], str] | None = None


def calls(config: Mapping[str, Any], model: str, count: int, seed: int = 0) -> Iterator[Call]:
    """So many calls, always the same for a seed. Those that are valid ask for a few tokens.

    Args:
        config: as the server describes its page, at `/config`.
        model: a name that its chat API knows.
    """
    random = Random(seed)
    chat = partial(_chat, model=model)
    event = partial(_event, events=config["dependencies"])
    kinds = (_call, _call, event, _direct, chat, chat, _upload, _cancel, _address)
    for _ in range(count):
        yield random.choice(kinds)(random)


def _call(random: Random) -> Call:
    """Values in their order, or by their names."""
    name = random.choice(_ENDPOINTS)

    def then(reply: Mapping[str, str]) -> str:
        return f"{_API}/call/{name}/{reply['event_id']}"

    if random.random() < 0.5:
        values = [*_REQUEST.form.values(), "race"] if name != "status" else []
        body = mutated_text({"data": values}, random)
        return Call("call", "POST", f"{_API}/call/{name}", body, then=then)
    asked = mutated({"instruction": "Why?", "mode": "race", "temperature": 0.5}, random)
    body = json.dumps({"max_new_tokens": _TOKENS} | asked)
    return Call("call by names", "POST", f"{_API}/call/v2/{name}", body, then=then)


def _event(random: Random, events: Sequence[Mapping[str, Any]]) -> Call:
    """An event of the page, or none of it, with strange values."""
    event = random.choice(events)
    count = random.choice((len(event["inputs"]), random.randrange(20)))
    asked = {
        "fn_index": random.choice((event["id"], event["id"], random.choice(STRANGE))),
        "session_hash": (session := f"{random.getrandbits(64):x}"),
        "data": random.choices(STRANGE[:_SIMPLE], k=count),
    }
    return Call(
        "event",
        "POST",
        f"{_API}/queue/join",
        json.dumps(asked),
        then=lambda reply: f"{_API}/queue/data?session_hash={session}",
    )


def _direct(random: Random) -> Call:
    asked = {"fn_index": random.randrange(60), "session_hash": "a", "data": [None, "x"]}
    path = random.choice(("predict", *_ENDPOINTS))
    return Call("direct", "POST", f"{_API}/run/{path}", mutated_text(asked, random))


def _chat(random: Random, model: str) -> Call:
    asked = {
        "model": model,
        "messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "Why?"}],
        "temperature": 0.5,
        "seed": 3,
        "stream": random.random() < 0.5,
        "stream_options": {"include_usage": True},
    }
    changed = mutated(asked, random)
    short = {"max_tokens": random.choice((_TOKENS, *STRANGE[:_SIMPLE]))}
    return Call("chat", "POST", "/v1/chat/completions", json.dumps({**changed, **short}))


def _upload(random: Random) -> Call:
    name, content = (str(random.choice(STRANGE)) for _ in range(2))
    name = name.encode(errors="replace").decode()[:200]
    field = random.choice(("files", "file", ""))
    files = {field: (name, content.encode(errors="replace"), "application/json")}
    return Call("upload", "POST", f"{_API}/upload", files=files)


def _cancel(random: Random) -> Call:
    asked = {"session_hash": "a", "fn_index": 0, "event_id": "b"}
    path = random.choice(("cancel", "reset", "component_server"))
    return Call("cancel", "POST", f"{_API}/{path}", mutated_text(asked, random))


def _address(random: Random) -> Call:
    path = random.choice(("", _API)) + random.choice(_ADDRESSES)
    return Call("address", random.choice(_METHODS), path, random.choice(("", "{}", "[]", "x")))


def sent(client: httpx.Client, call: Call) -> tuple[int, str]:
    """The status and the text of the answer.

    Raises:
        httpx.HTTPError: there is none.
    """
    headers = {"Content-Type": "application/json"} if call.body else {}
    reply = client.request(
        call.method, call.path, content=call.body or None, files=call.files, headers=headers
    )
    if call.then and reply.is_success:
        later = client.get(call.then(reply.json()))
        return later.status_code, later.text
    return reply.status_code, reply.text


def failures(call: Call, status: int, text: str, seconds: float, log: str) -> Iterator[str]:
    """A line for each defect.

    Args:
        status, text: of the answer.
        seconds: until it came.
        log: what the server wrote to its terminal meanwhile.
    """
    about = f"{call.kind} {call.method} {call.path} {call.body[:300]}"
    if seconds > LONGEST:
        yield f"{about} took {seconds:.1f} s"
    lines = list(_error_lines(text))
    if status >= httpx.codes.INTERNAL_SERVER_ERROR and not lines:
        yield f"{about} got status {status}: {text[:200]!r}"
    if "Traceback" in text or "Traceback" in log:
        yield f"{about} is a traceback: {(log or text)[-500:]!r}"
    elif len(log.splitlines()) > 1:
        yield f"{about} is more than a line in the log: {log[:300]!r}"
    for line in lines:
        if "\n" in line:
            yield f"{about} got more than a line: {line[:200]!r}"


def _error_lines(text: str) -> Iterator[str]:
    """The errors in an answer, or in the messages of a stream."""
    for part in text.split("data: ") if "data: " in text else [text]:
        try:
            record = json.loads(part.partition("\n")[0])
        except ValueError:
            continue
        for path in paths(record) if isinstance(record, dict | list) else ():
            value = at(record, path)
            if path[-1] in _LINES and isinstance(value, str):
                yield value


def measure(work: Path, pair: str = DEFAULT_PAIR, count: int = 10_000) -> Finding:
    """Calls a server so often, one call after the other.

    Args:
        work: an empty folder.
        pair: a name of the registry, or a folder.
    """
    found: list[str] = []
    seconds: list[float] = []
    kinds: Counter[str] = Counter()
    statuses: Counter[int] = Counter()
    with (
        ready(work, pair) as server,
        httpx.Client(base_url=server.url, timeout=_TIMEOUT) as client,
    ):
        config = client.get("/config").json()
        model = client.get("/v1/models").json()["data"][0]["id"]
        # The first run measures the costs again if that was disturbed while the models were loaded.
        first = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
        client.post("/v1/chat/completions", json=first, timeout=PATIENCE).raise_for_status()
        before = len(server.errors)
        for call in calls(config, model, count):
            begun = time.perf_counter()
            try:
                status, text = sent(client, call)
            except httpx.HTTPError as error:
                status, text = 0, ""
                found.append(f"{call.kind} {call.method} {call.path}: no answer ({error!r})")
            log = server.errors
            took = time.perf_counter() - begun
            found += failures(call, status, text, took, log[before:])
            before = len(log)
            seconds.append(took)
            kinds[call.kind] += 1
            statuses[status] += 1
    figures = {
        "calls": count,
        "kinds": dict(sorted(kinds.items())),
        "statuses": {str(status): times for status, times in sorted(statuses.items())},
        "slowest_s": round(max(seconds), 3),
        "mean_ms": round(1000 * fmean(seconds), 2),
    }
    return Finding(figures, tuple(found))
