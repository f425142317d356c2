"""The API: its example, as the page shows it, runs; its parameters name what there is."""

import ast
import json
import subprocess
import sys
from urllib.request import urlopen

import httpx
import pytest
from playwright.sync_api import expect

from pipeline.decoding.drafters import DRAFTERS
from pipeline.decoding.verification import VERIFIERS
from pipeline.request import FORM_FIELDS, Request
from pipeline.runtime.kv_cache.registry import POLICIES
from tests.served import called, event, open_settings, opened, run, shown, wait_for_end
from ui.run.recorded import recorded

QUOTED = "Say \"it's\" \\n\n'''twice''' \u2028 {name} ünï 🐕"


def test_the_example_of_the_page_runs_as_it_stands(page, url):
    page.get_by_role("tab", name="Trace & API").click()
    shown_example = page.get_by_label("An example in Python")
    expect(shown_example).to_contain_text(url)
    expect(shown_example).to_contain_text(recorded().request["instruction"])
    run(page, 'Say "it"')
    expect(shown_example).to_contain_text(r'predict("Say \"it\"", max_new_tokens=100')
    wait_for_end(page)
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
            "document.getElementById('copy-python').textContent === 'Copied'"
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
    given = [keyword.arg for keyword in ast.parse(script).body[2].value.keywords]
    assert {*given} == {"instruction", "max_new_tokens", "kv_precision", "mode", "api_name"}
    for lane, text in answers.items():
        assert f"{lane}:\n{text}\n" in ran.stdout


def test_its_parameters_name_the_drafters_and_the_caches_to_choose_from(url):
    with urlopen(f"{url}gradio_api/info") as reply:
        endpoints = json.load(reply)["named_endpoints"]
    for endpoint in ("/race", "/trace"):
        kinds = {p["parameter_name"]: p["type"] for p in endpoints[endpoint]["parameters"]}
        assert kinds["drafter"] == {"enum": [*DRAFTERS]}
        assert kinds["kv_cache"] == {"enum": [*POLICIES]}
        assert kinds["verification"] == {"enum": [*VERIFIERS]}


VALUES = [*Request("any", max_new_tokens=5).form.values(), "race"]
BAD_INPUT = [  # field of the API, value, how its one line begins: one of each kind
    ("instruction", " \n ", "instruction: “” —"),
    ("instruction", "x" * 1_000_000, f"instruction: “{'x' * 60}…” — shorten its 1,000,000 char"),
    ("instruction", "a\0b", r"instruction: “a\x00b” —"),
    ("instruction", "a\ud800b", r"instruction: “a\ud800b” —"),
    ("draft_length", 9, "draft length: 9 —"),
    ("draft_length", "four", "draft length: “four” —"),
    ("temperature", float("nan"), "temperature: nan —"),
    ("kv_cache", "magic", "KV cache: “magic” —"),
]


@pytest.mark.parametrize(
    ("endpoint", "field", "value", "line"),
    [("race", *BAD_INPUT[0]), *(("trace", *each) for each in BAD_INPUT)],
)
def test_bad_input_gets_its_one_line(url, endpoint, field, value, line):
    bad = [*VALUES]
    bad[FORM_FIELDS.index(field)] = value
    event, data = called(url, endpoint, bad)
    assert event == "error"
    assert data["error"].startswith(line)
    assert "\n" not in data["error"]
    assert called(url, endpoint, VALUES)[0] == "complete"


OPEN = "Open a trace"
PASSWORDS = {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}
NAN = {"content": b'{"session_hash": NaN}', "headers": {"Content-Type": "application/json"}}
UNKNOWN = {"fn_index": 999, "session_hash": "a", "data": []}


def trace(url, *values):
    """What `/trace` answers to these inputs."""
    return called(url, "trace", values)[1]["error"]


def press(url, kind, label, *data):
    """What an event of the page answers to inputs of others."""
    asked = {"fn_index": event(url, kind, label), "session_hash": "any", "data": data}
    reply = httpx.post(f"{url}gradio_api/run/predict", json=asked).json()
    return reply["error"] if "error" in reply else str(reply["data"])


def post(url, path, **content):
    reply = httpx.post(f"{url}gradio_api/{path}", **content)
    assert reply.status_code == 400
    return reply.json()["detail"]


@pytest.mark.parametrize(
    ("line", "call"),
    [
        (f"inputs: 3 — trace takes {len(VALUES)}.", lambda url: trace(url, *VALUES[:3])),
        ("file: “not uploaded” — ", lambda url: press(url, "upload", OPEN, None, PASSWORDS)),
        ("call: “", lambda url: press(url, "upload", OPEN, None, "x" * 1000)),
        ("call: “Value: any is ", lambda url: press(url, "click", "Load", None, "any", "model")),
        ("call: “js_fn_", lambda url: press(url, "click", "Share")),
        ("call: “FnIndexInferError ", lambda url: post(url, "call/nothing", json={"data": []})),
        ("call: “KeyError ", lambda url: post(url, "call/v2/nothing", json={})),
        ("call: “TypeError No value ", lambda url: post(url, "call/v2/trace", json={})),
        ("call: “KeyError 999” — send", lambda url: post(url, "queue/join", json=UNKNOWN)),
        ("call: “ValueError Out of ", lambda url: post(url, "reset", **NAN)),
        (
            "call: “TypeError File is",
            lambda url: post(url, "upload", files={"files": (None, b"a")}),
        ),
    ],
)
def test_a_call_with_other_inputs_is_one_line_for_the_client_and_in_the_log(
    url, caplog, capsys, line, call
):
    said = call(url)
    assert said.startswith(line)
    assert "\n" not in said
    assert len(said) < 300
    logged = [record.getMessage() for record in caplog.records if record.name == "ui.inputs"]
    assert logged == [said]
    assert not any(record.exc_info for record in caplog.records)
    assert "Traceback" not in capsys.readouterr().err


def test_values_that_the_page_does_not_send_are_one_line(url, caplog, capsys):
    assert press(url, "click", "An example", "any").startswith("example: “any” — ")
    assert "trace file: None " in press(url, "upload", OPEN, None, None)
    assert not any(record.exc_info for record in caplog.records)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("path", ["call/trace/1", "queue/data?session_hash=nobody"])
def test_a_stream_that_is_not_there_ends_with_one_line(url, caplog, path):
    assert "404: Not Found" in httpx.get(f"{url}gradio_api/{path}").text
    (line,) = [record.getMessage() for record in caplog.records if record.name == "ui.inputs"]
    assert line.startswith("stream: “/gradio_api/")
    assert not any(record.exc_info for record in caplog.records)
