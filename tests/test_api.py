"""The API: its example, as the page shows it, runs; its parameters name what there is."""

import ast
import json
import subprocess
import sys
from contextlib import closing
from urllib.request import urlopen

import httpx
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError
from playwright.sync_api import expect

from pipeline.decoding.drafters import DRAFTERS
from pipeline.decoding.verification import VERIFIERS
from pipeline.request import Request
from pipeline.runtime.kv_cache.registry import POLICIES
from tests.served import event, open_settings, opened, run, shown, wait_for_end

QUOTED = "Say \"it's\" \\n\n'''twice''' \u2028 {name} ünï 🐕"


def test_the_example_of_the_page_runs_as_it_stands(page, url):
    page.get_by_role("tab", name="Trace & API").click()
    shown_example = page.get_by_label("An example in Python")
    expect(shown_example).to_contain_text(url)
    example = shown_example.inner_text()
    expect(page.locator("article.api")).to_contain_text(f"{url}v1", use_inner_text=True)
    ran = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "fake" in ran.stdout
    assert "speculative" in ran.stdout
    assert "word" in ran.stdout


def test_the_copied_script_runs_what_the_page_ran(browser, url, dolly):
    browser.grant_permissions(["clipboard-read", "clipboard-write"])
    with opened(browser, url) as page:
        open_settings(page)
        page.get_by_label("New tokens").fill("9")
        page.get_by_label("KV precision").click()
        page.get_by_role("option", name="u8").click()
        run(page, QUOTED)
        wait_for_end(page)
        answers = {lane: "".join(shown(page, lane)) for lane in dolly.last_trace().lanes}
        page.get_by_role("button", name="Copy as Python").click()
        page.wait_for_function(  # in the page, since it is said for two seconds
            "document.getElementById('copy-python').textContent === 'Python copied'"
        )
        script = page.evaluate("navigator.clipboard.readText()")
    asked = dolly.last_trace().request
    assert (asked["instruction"], asked["max_new_tokens"]) == (QUOTED, 9)
    assert url in script
    ran = subprocess.run(
        [sys.executable, "-"], input=script, capture_output=True, text=True, encoding="utf-8"
    )
    assert ran.returncode == 0, ran.stderr
    assert dolly.last_trace().request == asked
    for lane, text in answers.items():
        assert f"{lane}:\n{text}\n" in ran.stdout


def test_the_copied_script_names_only_what_differs_from_the_defaults(browser, url, dolly):
    browser.grant_permissions(["clipboard-read", "clipboard-write"])
    with opened(browser, url) as page:
        open_settings(page)
        page.get_by_label("Instruction").fill("Say it")
        page.get_by_role("button", name="Copy as Python").click()
        page.wait_for_function(  # in the page, since it is said for two seconds
            "document.getElementById('copy-python').textContent === 'Python copied'"
        )
        script = page.evaluate("navigator.clipboard.readText()")
    call = ast.parse(script).body[2].value
    given = {keyword.arg: keyword.value.value for keyword in call.keywords}
    assert given == {"instruction": "Say it", "mode": "race", "api_name": "/trace"}


def test_its_parameters_name_the_drafters_and_the_caches_to_choose_from(url):
    with urlopen(f"{url}gradio_api/info") as reply:
        endpoints = json.load(reply)["named_endpoints"]
    for endpoint in ("/race", "/trace"):
        kinds = {p["parameter_name"]: p["type"] for p in endpoints[endpoint]["parameters"]}
        assert kinds["drafter"] == {"enum": [*DRAFTERS]}
        assert kinds["kv_cache"] == {"enum": [*POLICIES]}
        assert kinds["verification"] == {"enum": [*VERIFIERS]}


VALUES = [*Request("any", max_new_tokens=5).form.values(), "race"]
PASSWORDS = {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}


def called(url, values):
    """What `/trace` answers to these inputs."""
    joined = httpx.post(f"{url}gradio_api/call/trace", json={"data": values}).json()
    *_, data = httpx.get(f"{url}gradio_api/call/trace/{joined['event_id']}").text.split("data: ")
    return json.loads(data)["error"]


def uploaded(url, file):
    """What the page's event that opens a trace answers to this file."""
    events = httpx.get(f"{url}config").json()["dependencies"]
    (upload,) = [
        event["id"] for event in events if [on for _, on in event["targets"]] == ["upload"]
    ]
    asked = {"fn_index": upload, "session_hash": "any", "data": [None, file]}
    return httpx.post(f"{url}gradio_api/run/predict", json=asked).json()["error"]


def detail(url, path, asked):
    reply = httpx.post(f"{url}gradio_api/{path}", json=asked)
    assert reply.status_code == 400
    return reply.json()["detail"]


def refused(url, path, **asked):
    """What is answered to content that is not as it should be."""
    reply = httpx.post(f"{url}gradio_api/{path}", **asked)
    assert reply.status_code == 400
    return reply.json()["detail"]


def pressed(url, number, data):
    """What the page's event of this number answers."""
    asked = {"fn_index": number, "session_hash": "any", "data": data}
    return httpx.post(f"{url}gradio_api/run/predict", json=asked).json()["error"]


def in_the_browser(url):
    """The number of an event without a function of the server."""
    events = httpx.get(f"{url}config").json()["dependencies"]
    return next(each["id"] for each in events if not each["backend_fn"])


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda url: called(url, VALUES[:3]), f"inputs: 3 — trace takes {len(VALUES)}."),
        (lambda url: called(url, [*VALUES, 1]), f"inputs: {len(VALUES) + 1} — trace takes"),
        (lambda url: called(url, []), "inputs: 0 — trace takes"),
        (lambda url: uploaded(url, PASSWORDS), "file: “not uploaded” — upload it"),
        (lambda url: uploaded(url, {"path": 5}), "call: “"),
        (lambda url: uploaded(url, "x" * 1000), "call: “"),
        (lambda url: detail(url, "call/nothing", {"data": []}), "call: “FnIndexInferError "),
        (lambda url: detail(url, "call/v2/nothing", {}), "call: “KeyError "),
        (
            lambda url: detail(url, "call/v2/trace", {"instruction": "a", "b": 1}),
            "call: “TypeError ",
        ),
        (lambda url: detail(url, "call/v2/trace", {}), "call: “TypeError No value provided"),
        (
            lambda url: detail(
                url, "queue/join", {"fn_index": 999, "session_hash": "a", "data": []}
            ),
            "call: “KeyError 999” — send what the API describes",
        ),
        (
            lambda url: pressed(url, event(url, "click", "Load"), [None, "any", "model"]),
            "call: “Value: any is not in the list of choices: ",
        ),
        (lambda url: pressed(url, in_the_browser(url), []), "call: “"),
        (
            lambda url: refused(
                url,
                "reset",
                content=b'{"session_hash": NaN}',
                headers={"Content-Type": "application/json"},
            ),
            "call: “ValueError Out of range float values",
        ),
        (
            lambda url: refused(url, "upload", files={"files": (None, b"any")}),
            "call: “TypeError File is not an instance",
        ),
    ],
)
def test_a_call_with_other_inputs_is_one_line_for_the_client_and_in_the_log(
    url, caplog, capsys, call, line
):
    said = call(url)
    assert said.startswith(line)
    assert "\n" not in said
    assert len(said) < 300
    assert [record.getMessage() for record in caplog.records if record.name == "ui.inputs"] == [
        said
    ]
    assert not any(record.exc_info for record in caplog.records)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("path", ["call/trace/1", "queue/data?session_hash=nobody"])
def test_a_stream_that_is_not_there_ends_with_one_line(url, caplog, path):
    assert "404: Not Found" in httpx.get(f"{url}gradio_api/{path}").text
    (line,) = [record.getMessage() for record in caplog.records if record.name == "ui.inputs"]
    assert line.startswith("stream: “/gradio_api/")
    assert not any(record.exc_info for record in caplog.records)


def test_an_example_that_no_pair_has_is_one_line(url, capsys):
    assert pressed(url, event(url, "click", "An example"), ["any"]).startswith("example: “any” — ")
    assert "Traceback" not in capsys.readouterr().err


def test_a_trace_that_is_no_file_is_one_line(url, caplog):
    asked = {"fn_index": event(url, "upload", "Open a trace"), "session_hash": "any"}
    reply = httpx.post(f"{url}gradio_api/run/predict", json=asked | {"data": [None, None]})
    assert "trace file: None " in reply.text
    assert not any(record.exc_info for record in caplog.records)


def test_who_calls_with_other_inputs_by_the_client_is_told_in_one_line(url):
    with closing(Client(url, verbose=False)) as client:
        for values in ((), [*VALUES, "one more"]):
            with pytest.raises((TypeError, ValueError, AppError)) as refused:
                client.predict(*values, api_name="/trace")
            assert "\n" not in str(refused.value)
