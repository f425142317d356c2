"""The API: its example, as the page shows it, runs; its parameters name what there is."""

import json
import subprocess
import sys
from urllib.request import urlopen

from pipeline.decoding.drafters import DRAFTERS
from pipeline.runtime.kv_cache.registry import POLICIES


def test_the_example_of_the_page_runs_as_it_stands(page, url):
    page.get_by_role("tab", name="Trace & API").click()
    example = page.get_by_label("An example in Python").inner_text()
    assert url in example
    ran = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "fake" in ran.stdout
    assert "speculative" in ran.stdout
    assert "word" in ran.stdout


def test_its_parameters_name_the_drafters_and_the_caches_to_choose_from(url):
    with urlopen(f"{url}gradio_api/info") as reply:
        endpoints = json.load(reply)["named_endpoints"]
    for endpoint in ("/race", "/trace"):
        kinds = {p["parameter_name"]: p["type"] for p in endpoints[endpoint]["parameters"]}
        assert kinds["drafter"] == {"enum": [*DRAFTERS]}
        assert kinds["kv_cache"] == {"enum": [*POLICIES]}
