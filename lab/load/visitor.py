"""A visitor: a session of the page over HTTP, as its scripts and Gradio's clients hold one."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import httpx

from lab.load.server import PATIENCE
from pipeline.request import Request
from pipeline.trace.reader import parse_trace
from pipeline.trace.record import Trace

LONG = Request("Tell me a story.", max_new_tokens=1000, kv_cache="uncached")  # a minute and more
NO_ANSWER = "no answer"
_API = "/gradio_api"
_PATIENCE = 180.0  # seconds; a replica that is lost takes some to come back


class Visitor:
    """An open session of the page at `url`. It runs one event at a time: Gradio's Stop ends all of
    a session.
    """

    def __init__(self, url: str) -> None:
        self._session = uuid4().hex
        self._client = httpx.Client(base_url=url, timeout=PATIENCE)
        config = self._client.get("/config").raise_for_status().json()
        self._events = config["dependencies"]
        self._components = {each["id"]: each["props"] for each in config["components"]}
        # By this stream, the server knows that the visitor is there.
        heartbeat = self._client.build_request("GET", f"{_API}/heartbeat/{self._session}")
        self._streams = [self._client.send(heartbeat, stream=True)]

    def race(self, request: Request) -> Race:
        """Asks the API for a race; returns once it is in the queue, begins or is refused."""
        event = next(each for each in self._events if each["api_name"] == "race")
        return self._queued(event, [*request.form.values(), "race"])

    def press(self, label: str, values: Mapping[str, Any]) -> Race:
        """Presses a button of the page.

        Args:
            label: of the button.
            values: of fields of the form, by their labels; others have those that the page begins
                with.
        """
        (button,) = [
            number
            for number, props in self._components.items()
            if label in (props.get("value"), props.get("label"))
        ]
        clicked = (each for each in self._events if [button, "click"] in each["targets"])
        event = next(each for each in clicked if each["backend_fn"])  # others run in the browser
        data = [
            values.get(props.get("label", ""), props.get("value"))
            for props in (self._components[number] for number in event["inputs"])
        ]
        return self._queued(event, data)

    def close(self) -> None:
        """Ends all connections, as a closed tab or a killed browser does; the server is told
        nothing.
        """
        for stream in self._streams:
            with suppress(OSError):  # it has ended
                stream.extensions["network_stream"].get_extra_info("socket").shutdown(
                    socket.SHUT_RDWR
                )
        self._client.close()

    def _queued(self, event: Mapping[str, Any], data: Sequence[Any]) -> Race:
        asked = {"fn_index": event["id"], "session_hash": self._session, "data": data}
        race = Race(self._client, asked, event["api_name"] == "race")
        self._streams += [race.stream] if race.stream else []
        return race


class Race:
    """An event that a visitor has asked for: a race of the page or of its API.

    Args:
        asked: the event, its session and its data.
        api: whether it is a race of the API, whose output is a trace.

    Attributes:
        asked: when, in seconds since 1970.
        rank: its place in the queue, as the server reported it first: 0 is the next; None of one
            that was refused.
        first_token_s: seconds until a token came; None before, and of what is no race of the API.
        stream: the server's messages; None of one that was refused.
    """

    def __init__(self, client: httpx.Client, asked: Mapping[str, Any], api: bool) -> None:
        self.asked = time.time()
        self.rank: int | None = None
        self.first_token_s: float | None = None
        self.stream: httpx.Response | None = None
        self._client, self._event, self._api = client, asked, api
        self._output, self._failure = "", NO_ANSWER
        self._queued, self._begun, self._over = self._stages = Event(), Event(), Event()
        reply = client.post(f"{_API}/queue/join", json=asked)
        if reply.is_success:
            self._id = reply.json()["event_id"]
            session = {"session_hash": asked["session_hash"]}
            messages = client.build_request("GET", f"{_API}/queue/data", params=session)
            self.stream = client.send(messages, stream=True)
            Thread(target=self._listen, args=(self.stream,), daemon=True).start()
            self._queued.wait(_PATIENCE)
        else:
            self._failure = str(reply.json()["detail"])
            self._end()

    @property
    def ended(self) -> bool:
        """Whether its result is there, or a failure."""
        return self._over.is_set()

    def wait_until_begun(self, timeout: float = _PATIENCE) -> None:
        """Returns at the first token, or once it ended without one.

        Raises:
            TimeoutError: neither happens.
        """
        if not self._begun.wait(timeout):
            raise TimeoutError

    def stop(self) -> None:
        """As the page's button."""
        asked = {name: self._event[name] for name in ("session_hash", "fn_index")}
        self._client.post(f"{_API}/cancel", json=asked | {"event_id": self._id})

    def failure(self, timeout: float = _PATIENCE) -> str:
        """The line that the visitor is told, once it has ended; "" if it was answered."""
        self._over.wait(timeout)
        return self._failure

    def trace(self) -> Trace:
        """The whole record, once the race has ended.

        Raises:
            RuntimeError: it failed, was refused or does not end, with the line of its `failure`.
        """
        if line := self.failure():
            raise RuntimeError(line)
        return parse_trace(json.dumps(json.loads(self._output)["trace"]))

    def _end(self) -> None:
        for stage in self._stages:
            stage.set()

    def _listen(self, stream: httpx.Response) -> None:
        try:
            for line in filter(None, stream.iter_lines()):
                self._receive(json.loads(line.removeprefix("data: ")))
        except httpx.HTTPError as error:  # the connection is gone
            self._failure = self._failure and f"{NO_ANSWER} ({error!r})"
        finally:
            stream.close()
            self._end()

    def _receive(self, message: Mapping[str, Any]) -> None:
        match message["msg"]:
            case "estimation" if not self._queued.is_set():
                self.rank = message["rank"]
                self._queued.set()
            case "process_generating" if self._api:
                self._output = _changed(self._output, message["output"]["data"][0])
                if not self._begun.is_set() and _has_tokens(self._output):
                    self.first_token_s = time.time() - self.asked
                    self._begun.set()
            case "process_completed":
                self._failure = "" if message["success"] else message["output"]["error"]


def _changed(text: str, output: Any) -> str:
    """The output of the API: at first it comes whole, then as changes of the text before."""
    if isinstance(output, str):
        return output
    for action, _, change in output:
        text = text + change if action == "append" else change
    return text


def _has_tokens(output: str) -> bool:
    return any(update["tokens"] for update in json.loads(output).get("updates", ()))
