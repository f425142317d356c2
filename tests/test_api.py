"""The API's example, as the page shows it: it runs."""

import subprocess
import sys

from tests.fake_dolly import FakeDolly
from tests.served import PLAIN, opened, served


def test_the_example_of_the_page_runs_as_it_stands(browser):
    with served(FakeDolly(PLAIN)) as url:
        with opened(browser, url) as page:
            page.get_by_role("tab", name="Trace & API").click()
            example = page.get_by_label("An example in Python").inner_text()
        assert url in example
        ran = subprocess.run(
            [sys.executable, "-c", example], capture_output=True, text=True, timeout=60
        )
    assert ran.returncode == 0, ran.stderr
    assert "fake" in ran.stdout
    assert "speculative" in ran.stdout
    assert "word" in ran.stdout
