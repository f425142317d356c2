"""A browser for the tests of the page."""

import gc
import os
import shutil

import pytest
from playwright.sync_api import Error, sync_playwright

QUIET = (  # no sandbox, so that it runs as root in a container; and nothing fetched on its own
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

PATIENCE = 60_000  # milliseconds that a page may take for anything: others may use the cores


def pytest_collection_finish():
    """What was imported is never garbage: collecting it takes optimum a second a model."""
    gc.freeze()


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """The system's Chromium, or Playwright's own. Without either: skipped, but not under CI.

    One for all, so that it reads Gradio's scripts once: a page then opens in half the time.
    """
    installed = filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch_persistent_context(
                tmp_path_factory.mktemp("browser"),
                executable_path=next(installed, None),
                args=list(QUIET),
            )
        except Error as error:
            reason = f"no Chromium: {str(error).splitlines()[0]}"
            if os.environ.get("CI"):
                pytest.fail(reason)
            pytest.skip(reason)
        browser.set_default_timeout(PATIENCE)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def fake():
    """What is served: a Dolly of tables."""
    from tests.fake_dolly import FakeDolly
    from tests.served import PLAIN

    return FakeDolly(PLAIN)


@pytest.fixture(scope="module")
def url(fake):
    from tests.served import served  # loads Gradio

    with served(fake) as url:
        yield url


@pytest.fixture
def dolly(fake):
    """The served fake, as fast and as healthy as it was."""
    from tests.served import PLAIN

    yield fake
    fake.pause, fake.fails, fake.texts = 0.0, False, PLAIN


@pytest.fixture
def page(browser, url):
    from tests.served import opened

    with opened(browser, url) as page:
        yield page
