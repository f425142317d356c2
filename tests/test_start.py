"""The program as a user starts it: in a process of its own, here without a network.

Only such a process imports the page's libraries and the models' at the same time, in two threads;
in that of the tests, both are there already.
"""

import json
import os
import shutil
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError
from playwright.sync_api import expect

from lab.load.server import Server
from pipeline.models.pairs import DEFAULT_PAIR, PAIRS
from pipeline.trace.reader import parse_trace
from tests.served import (
    assert_shows,
    drafters,
    open_settings,
    opened,
    run,
    status_says,
    to_the_end,
    wait_for_end,
)
from tests.tiny import tiny_folder
from ui.run.recorded import recorded
from ui.verdict import verdict

EMBEDDED = PAIRS[DEFAULT_PAIR]
SHORT = "?max_new_tokens=20"
# What the page and the terminal say of a pair that cannot be loaded.
DAMAGED = "target” — replace the damaged files or convert the model again ("


@pytest.fixture(scope="module")
def apps():
    """One for each way to name a pair; they start at the same time, which takes less."""
    with ExitStack() as stack:
        # A short name, since the line about a model cuts what is long.
        folder = Path(stack.enter_context(TemporaryDirectory()))
        damaged = shutil.copytree(tiny_folder(), folder / DEFAULT_PAIR)  # as the embedded one
        os.truncate(damaged / "target" / "openvino_model.bin", 100_000)
        flags = {
            "embedded": (),
            "alone": ("--target", str(tiny_folder() / "target")),
            "damaged": ("--pair", str(damaged)),
        }
        apps = {
            name: stack.enter_context(Server("--cache-dir", str(folder / f"cache-{name}"), *more))
            for name, more in flags.items()
        }
        for app in apps.values():
            app.wait_until_open()
        yield apps


def test_the_embedded_pair_is_loaded_while_the_recorded_run_replays(apps, browser):
    """And terminated, the app ends its race."""
    app = apps["embedded"]
    assert_races(app, DEFAULT_PAIR, browser)
    with closing(Client(app.url, verbose=False)) as client:
        asked = {"instruction": "Why?", "max_new_tokens": 400, "kv_cache": "uncached"}
        job = client.submit(**asked, api_name="/race")
        next(iter(job))
        assert app.terminate() == 0


def test_a_target_alone_is_raced_with_what_copies_and_every_tab_copes(apps, browser):
    app = apps["alone"]
    assert_races(app, "target", browser)
    with opened(browser, app.url + SHORT) as page:
        open_settings(page)
        assert drafters(page) == ["Lookup", "Memory"]
        run(page, "How many planets are there?")
        status_says(page, "identical text")
        for tab in page.get_by_role("tab").all():
            tab.click()
            expect(page.locator("[role=tabpanel]:visible").first).not_to_be_empty()
        assert page.get_by_test_id("notice").inner_text() == ""
    with closing(Client(app.url, verbose=False)) as client:
        asked = {"instruction": "Why?", "max_new_tokens": 20}
        whole = client.predict(**asked, drafter="memory", api_name="/trace")
        trace = parse_trace(json.dumps(whole))
        assert (trace.pair["draft"], trace.pair["block"]) == (None, None)
        with pytest.raises(AppError, match="“model” — this pair has no model for it"):
            client.predict(**asked, drafter="model", api_name="/trace")
    assert app.errors == ""


def assert_races(app, name, browser):
    """Replays the recorded run first, and complains of nothing."""
    with opened(browser, app.url + SHORT) as page:
        to_the_end(page)
        assert_shows(page, recorded())
        run(page, "How many planets are there?")
        status_says(page, "identical text")
        assert_shows_a_race_of_real_models(page)
    assert served_pair(app) == name
    assert app.errors == ""


def assert_shows_a_race_of_real_models(page):
    """By its trace: the tokens of each lane join to its text, and all figures are the trace's."""
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the trace").click()
    trace = parse_trace(download.value.path().read_text(encoding="utf-8"))
    assert trace.finished
    assert all(lane.tokens for lane in trace.lanes.values())
    wait_for_end(page, trace.autoregressive.finish)  # a short race is replayed
    assert_shows(page, trace)
    told = page.get_by_test_id("verdict").inner_text()
    assert verdict(trace)["headline"] in told
    more = page.get_by_test_id("verdict").locator(".more").text_content()
    assert f"({trace.speculative.accepted} of {trace.speculative.tested})" in more
    page.locator(".plot .bars").first.wait_for()


def test_where_a_pair_cannot_be_had_the_page_says_why_and_offers_the_embedded(apps, browser):
    app = apps["damaged"]
    with opened(browser, app.url + SHORT, status=DAMAGED) as page:
        to_the_end(page)
        assert_shows(page, recorded())
        notice = page.get_by_test_id("notice")
        expect(notice).to_contain_text(
            f"press Load in Settings to use {EMBEDDED.title}", use_inner_text=True
        )
        run(page, begins=False)
        notice.filter(has_text=DAMAGED).wait_for()
        assert "\n" not in notice.inner_text()
        page.get_by_role("button", name="Load", exact=True).click()
        status_says(page, "Ready")
        run(page, "How many planets are there?")
        status_says(page, "identical text")
        expect(page.get_by_test_id("model")).to_contain_text(EMBEDDED.title, use_inner_text=True)
    assert served_pair(app) == DEFAULT_PAIR
    (line,) = app.errors.splitlines()
    assert DAMAGED in line


def served_pair(app):
    with closing(Client(app.url, verbose=False)) as client:
        status = client.predict(api_name="/status")
    assert status["ready"]
    return status["pair"]["name"]
