"""A browser for the tests of the page, and one server for those that need no other.

Nearly all tests of the page share the server of one fake pair. A test that needs other flags, a
pair that is still on its way, or a server of which little is left afterwards, starts its own
(`tests.served`).
"""

import gc
import os
import shutil

import hypothesis
import pytest
from playwright.sync_api import Error, expect, sync_playwright

from tests.waiting import PATIENCE

# Of PyTorch, which is imported later. On cores that others use too, the threads of a tiny model
# wait for each other ten times as long as they compute.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes says more of what else the machine does than of the code.
hypothesis.settings.register_profile("shared machine", deadline=None)
hypothesis.settings.load_profile("shared machine")

QUIET = (  # no sandbox, so that it runs as root in a container; and nothing fetched on its own
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


# Files of half a minute and more that would come last, so that one process waits for the other.
FIRST = (
    *("test_load.py", "test_proxy.py", "test_start.py", "test_tour.py", "test_training.py"),
    "test_visitors.py",
)


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name not in FIRST)


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
        browser.set_default_timeout(1000 * PATIENCE)
        expect.set_options(timeout=1000 * PATIENCE)  # which has its own, of five seconds
        yield browser
        browser.close()


@pytest.fixture(autouse=True)
def forgetful(request):
    """What a page kept in the browser, as its theme, is gone for the next test."""
    yield
    if "browser" in request.fixturenames:
        browser = request.getfixturevalue("browser")
        devtools = browser.new_cdp_session(browser.pages[0])
        every = {"origin": "*", "storageTypes": "local_storage"}
        devtools.send("Storage.clearDataForOrigin", every)
        devtools.detach()


@pytest.fixture(scope="session")
def server():
    """A Dolly of tables, and the address that serves it."""
    from tests.fake_dolly import FakeDolly
    from tests.served import PLAIN, served  # loads Gradio

    fake = FakeDolly(PLAIN)
    with served(fake) as url:
        yield fake, url


@pytest.fixture
def dolly(server):
    """What is served: as fast and as healthy as any, and with nothing run, in each test."""
    fake, _ = server
    fake.reset()
    yield fake
    fake.reset()


@pytest.fixture
def url(server, dolly):
    return server[1]


@pytest.fixture
def page(browser, url):
    from tests.served import opened

    with opened(browser, url) as page:
        yield page
