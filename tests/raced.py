"""A race on the page of a process of its own."""

import os
import re
import subprocess
from contextlib import closing

from gradio_client import Client

from pipeline.models.pairs import DEFAULT_PAIR

_ADDRESS = r"http://[\d.:]+"


def environment(**more):
    """Without a path to the repository, and without a hub."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return kept | {"HF_ENDPOINT": "http://127.0.0.1:9"} | more


def assert_serves_a_race(command, folder, environment):
    """The command serves the embedded pair, races it with equal texts, and ends at SIGTERM."""
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            url = next(url for line in process.stdout for url in re.findall(_ADDRESS, line))
            with closing(Client(url, verbose=False)) as client:
                trace = client.predict("Why?", max_new_tokens=8, api_name="/trace")
        finally:
            process.terminate()
            process.communicate()
    assert trace["pair"]["name"] == DEFAULT_PAIR
    lanes = trace["lanes"]
    assert lanes["autoregressive"]["text"] == lanes["speculative"]["text"] != ""
    assert process.returncode == 0
