"""A browser for the tests of the page."""

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


@pytest.fixture(scope="session")
def browser():
    """The system's Chromium, or Playwright's own. Without either: skipped, but not under CI."""
    installed = filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=next(installed, None), args=list(QUIET)
            )
        except Error as error:
            reason = f"no Chromium: {str(error).splitlines()[0]}"
            if os.environ.get("CI"):
                pytest.fail(reason)
            pytest.skip(reason)
        yield browser
        browser.close()
