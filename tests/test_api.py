"""The API: its example, as the page shows it, runs; its parameters name what there is."""

import ast
import json
import subprocess
import sys
from urllib.request import urlopen

from pipeline.decoding.drafters import DRAFTERS
from pipeline.runtime.kv_cache.registry import POLICIES
from tests.served import opened, run, shown, wait_for_end

QUOTED = "Say \"it's\" \\n\n'''twice''' \u2028 {name} ünï 🐕"


def test_the_example_of_the_page_runs_as_it_stands(page, url):
    page.get_by_role("tab", name="Trace & API").click()
    example = page.get_by_label("An example in Python").inner_text()
    assert url in example
    assert f"{url}v1" in page.locator("article.api").inner_text()
    ran = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "fake" in ran.stdout
    assert "speculative" in ran.stdout
    assert "word" in ran.stdout


def test_the_copied_script_runs_what_the_page_ran(browser, url, dolly):
    browser.grant_permissions(["clipboard-read", "clipboard-write"])
    with opened(browser, url) as page:
        page.get_by_role("button", name="Settings").click()
        page.get_by_label("New tokens").fill("9")
        page.get_by_label("KV precision").click()
        page.get_by_role("option", name="u8").click()
        run(page, QUOTED)
        wait_for_end(page)
        answers = {lane: "".join(shown(page, lane)) for lane in dolly.last_trace().lanes}
        page.get_by_role("button", name="Copy as Python").click()
        page.get_by_role("button", name="Python copied").wait_for()
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
        page.get_by_role("button", name="Settings").click()
        page.get_by_label("Instruction").fill("Say it")
        page.get_by_role("button", name="Copy as Python").click()
        page.get_by_role("button", name="Python copied").wait_for()
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
