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
_API = "/gradio_api"
_PATIENCE = 180.0  # seconds; a replica that is lost takes some to come back


class Visitor:
    """An open session. It runs one event at a time: Gradio's Stop ends all of a session.

    Args:
        url: of the page.
        page: whether it opens the page as a browser does, with the events of its loading; it can
            call the API without.
    """

    def __init__(self, url: str, page: bool = False) -> None:
        self._session = uuid4().hex
        self._client = httpx.Client(base_url=url, timeout=PATIENCE)
        config = self._client.get("/config").raise_for_status().json()
        self._events = config["dependencies"]
        self._components = {each["id"]: each["props"] for each in config["components"]}
        # By this stream, the server knows that the visitor is there.
        heartbeat = self._client.build_request("GET", f"{_API}/heartbeat/{self._session}")
        self._streams = [self._client.send(heartbeat, stream=True)]
        if page:
            self._client.get("/").raise_for_status()
            for event in self._events:
                if any(kind == "load" for _, kind in event["targets"]):
                    self._load(event)

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

    def _load(self, event: Mapping[str, Any]) -> None:
        data = [self._components[number].get("value") for number in event["inputs"]]
        if event["queue"]:
            self._queued(event, data).wait()
        else:
            asked = self._asked(event, data)
            self._client.post(f"{_API}/run/predict", json=asked).raise_for_status()

    def _queued(self, event: Mapping[str, Any], data: Sequence[Any]) -> Race:
        race = Race(self._client, self._asked(event, data), event["api_name"] == "race")
        self._streams += [race.stream] if race.stream else []
        return race

    def _asked(self, event: Mapping[str, Any], data: Sequence[Any]) -> dict[str, Any]:
        return {"fn_index": event["id"], "session_hash": self._session, "data": data}


class Race:
    """An event of the page that a visitor has asked for: a race, but when the page loads.

    Args:
        asked: the event, its session and its data.
        api: whether it is a race of the API, whose output is a trace.

    Attributes:
        asked: seconds since 1970.
        rank: its place in the queue, as the server reported it first: 0 is the next; None of one
            that was refused.
        begun: whether a token has come.
        stream: the server's messages; None of one that was refused.
    """

    def __init__(self, client: httpx.Client, asked: Mapping[str, Any], api: bool) -> None:
        self.asked, self.begun = time.time(), False
        self.rank: int | None = None
        self.stream: httpx.Response | None = None
        self._client, self._event, self._api = client, asked, api
        self._output, self._failure = "", "no answer"
        self._queued, self._moved, self._over = Event(), Event(), Event()
        reply = client.post(f"{_API}/queue/join", json=asked)
        if reply.is_success:
            self._id = reply.json()["event_id"]
            session = {"session_hash": asked["session_hash"]}
            messages = client.build_request("GET", f"{_API}/queue/data", params=session)
            self.stream = client.send(messages, stream=True)
            Thread(target=self._listen, args=(self.stream,), daemon=True).start()
            _wait(self._queued)
        else:
            self._failure = str(reply.json()["detail"])
            self._moved.set()
            self._over.set()

    @property
    def ended(self) -> bool:
        """Whether its result is there, or a failure."""
        return self._over.is_set()

    def wait_until_begun(self) -> float:
        """Returns the seconds until the first token, or until it ended without one.

        Raises:
            TimeoutError: neither happens.
        """
        _wait(self._moved)
        return time.time() - self.asked

    def stop(self) -> None:
        """As the page's button."""
        asked = {name: self._event[name] for name in ("session_hash", "fn_index")}
        self._client.post(f"{_API}/cancel", json=asked | {"event_id": self._id})

    def failure(self, timeout: float = _PATIENCE) -> str:
        """The line that the visitor is told, once there is one; "" if there is none in time."""
        return self._failure if self._over.wait(timeout) else ""

    def trace(self) -> Trace:
        """The whole record, once the race has ended.

        Raises:
            RuntimeError: it failed or was refused, with the line that the visitor is told.
            TimeoutError: it does not end.
        """
        self.wait()
        return parse_trace(json.dumps(json.loads(self._output)["trace"]))

    def wait(self) -> None:
        """Returns once it has ended.

        Raises:
            RuntimeError, TimeoutError: as `trace`.
        """
        _wait(self._over)
        if self._failure:
            raise RuntimeError(self._failure)

    def _listen(self, stream: httpx.Response) -> None:
        try:
            for line in filter(None, stream.iter_lines()):
                self._receive(json.loads(line.removeprefix("data: ")))
        except httpx.HTTPError as error:  # the connection is gone
            self._failure = self._failure and f"no answer ({error!r})"
        finally:
            stream.close()
            for each in (self._queued, self._moved, self._over):
                each.set()

    def _receive(self, message: Mapping[str, Any]) -> None:
        match message["msg"]:
            case "estimation" if not self._queued.is_set():
                self.rank = message["rank"]
                self._queued.set()
            case "process_generating" if self._api:
                self._output = _changed(self._output, message["output"]["data"][0])
                if not self.begun and _has_tokens(self._output):
                    self.begun = True
                    self._moved.set()
            case "process_completed":
                self._failure = "" if message["success"] else message["output"]["error"]


def _wait(event: Event) -> None:
    if not event.wait(_PATIENCE):
        raise TimeoutError


def _changed(text: str, output: Any) -> str:
    """The output of the API: at first it comes whole, then as changes of the text before."""
    if isinstance(output, str):
        return output
    for action, _, change in output:
        text = text + change if action == "append" else change
    return text


def _has_tokens(output: str) -> bool:
    return any(update["tokens"] for update in json.loads(output).get("updates", ()))
