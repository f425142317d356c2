"""The scripts of the page: which are served, where, and that the page finds them there."""

import json
import re
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.served import status_says, to_the_end
from ui.modules import ASSETS, launched

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def modules(url):
    """The address of the modules."""
    (version,) = set(re.findall(r"modules/(\w+)/", launched()["head"]))
    return f"{url}modules/{version}/"


def test_every_script_of_the_assets_is_served_to_be_kept_and_nothing_else_is(url, modules):
    scripts = {path.relative_to(ASSETS).as_posix() for path in ASSETS.glob("**/*.js")}
    assert set(re.findall(r'href="modules/\w+/([^"]+)"', launched()["head"])) == scripts
    for name in scripts:
        reply = httpx.get(f"{modules}{name}")
        assert reply.content == (ASSETS / name).read_bytes()
        assert reply.headers["content-type"].startswith("text/javascript")
        assert "immutable" in reply.headers["cache-control"]
    others = ["page/page.css", "lanes/lanes.html", "models/digits/README.md", "recorded.json", ""]
    others += ["../app.py", "..%2fapp.py", "page/..%2f..%2f..%2fapp.py", str(ROOT / "app.py")]
    for name in others:
        assert httpx.get(f"{modules}{name}").status_code == 404, name
    other_version = re.sub(r"/modules/\w", "/modules/x", f"{modules}page/page.js")
    assert httpx.get(other_version).status_code == 404


def test_the_page_finds_its_scripts_behind_a_path_of_a_proxy(browser, url):
    asked = []

    def proxied(route):
        asked.append(route.request.url)
        route.fulfill(response=route.fetch(url=route.request.url.replace("/sub/path/", "/")))

    with closing(browser.new_page()) as page:
        page.on("request", lambda request: "/modules/" in request.url and asked.append(request.url))
        page.route(f"{url}sub/path/**", proxied)
        page.goto(f"{url}sub/path/")
        status_says(page, "Ready")
        to_the_end(page)
        page.locator("#timeline .plot .bars").first.wait_for()
    scripts = [each for each in asked if "/modules/" in each]
    assert any(each.endswith("plotly.min.js") for each in scripts)
    assert all(each.startswith(f"{url}sub/path/modules/") for each in scripts)


def test_the_tools_are_pinned_and_name_no_registry():
    package, lock = (json.loads((ROOT / f"package{end}.json").read_text()) for end in ("", "-lock"))
    assert not package.get("dependencies")  # the page needs none
    for version in package["devDependencies"].values():
        assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert not any("resolved" in each for each in lock["packages"].values())
