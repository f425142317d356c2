"""A browser tab without a browser: it calls the page's events as the page's scripts do."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

import httpx


class Tab:
    """Opens the page in a session of its own, and closes it.

    Args:
        client: of the server; its base URL is the page's address.
        config: as the server describes the page, at `/config`.
    """

    def __init__(self, client: httpx.Client, config: Mapping[str, Any]) -> None:
        self._client = client
        self._session = uuid4().hex
        self._events = config["dependencies"]
        self._components = {each["id"]: each["props"] for each in config["components"]}

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
        asked = {"fn_index": event["id"], "session_hash": self._session, "data": data}
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
