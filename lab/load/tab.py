"""A browser tab without a browser: it calls the page's events as the page's scripts do."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any
from uuid import uuid4

import httpx


class Tab:
    """A context in which the page is open, in a session of its own.

    On entering, it requests the page, opens the stream by which the server knows that the tab is
    open (Gradio's heartbeat), and calls the events of a page that loads. On leaving, the stream is
    closed, and so is the session.

    Args:
        client: of the server; its base URL is the page's address.
        config: as the server describes the page, at `/config`.
    """

    def __init__(self, client: httpx.Client, config: Mapping[str, Any]) -> None:
        self._client = client
        self._session = uuid4().hex
        self._events = config["dependencies"]
        self._components = {each["id"]: each["props"] for each in config["components"]}

    def __enter__(self) -> Tab:
        self._client.get("/").raise_for_status()
        with ExitStack() as stack:
            address = f"/gradio_api/heartbeat/{self._session}"
            stack.enter_context(self._client.stream("GET", address, timeout=None))
            for event in self._events:
                if any(kind == "load" for _, kind in event["targets"]):
                    self._load(event)
            self._opened = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._opened.close()

    def press(self, label: str, values: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Presses the button; yields Gradio's messages until the event has ended.

        Args:
            label: of the button.
            values: of fields of the form, by their labels; others have those that the page begins
                with.
        """
        event = self._event("click", label)
        data = [
            values.get(props.get("label", ""), props.get("value"))
            for props in (self._components[number] for number in event["inputs"])
        ]
        yield from self._queued(event, data)

    def _load(self, event: Mapping[str, Any]) -> None:
        data = [self._components[number].get("value") for number in event["inputs"]]
        if event["queue"]:
            for _ in self._queued(event, data):
                pass
        else:
            address = "/gradio_api/run/predict"
            self._client.post(address, json=self._asked(event, data)).raise_for_status()

    def _asked(self, event: Mapping[str, Any], data: Sequence[Any]) -> dict[str, Any]:
        return {"fn_index": event["id"], "session_hash": self._session, "data": data}

    def _queued(self, event: Mapping[str, Any], data: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
        asked = self._asked(event, data)
        self._client.post("/gradio_api/queue/join", json=asked).raise_for_status()
        session = {"session_hash": self._session}
        with self._client.stream("GET", "/gradio_api/queue/data", params=session) as messages:
            for line in filter(None, messages.iter_lines()):
                yield json.loads(line.removeprefix("data: "))

    def _event(self, kind: str, label: str) -> Mapping[str, Any]:
        (component,) = [
            number
            for number, props in self._components.items()
            if label in (props.get("value"), props.get("label"))
        ]
        return next(each for each in self._events if [component, kind] in each["targets"])
