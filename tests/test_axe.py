"""Everybody: what axe-core finds, and a race with nothing but a keyboard."""

from contextlib import closing

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.served import open_settings, opened, run, status_says, to_the_end, wait_for_end
from ui.tabs.registry import TABS

GRAVE = ("serious", "critical")


def violations(page):
    """What axe says that is grave, by rule, with the elements."""
    found = Axe().run(page).response["violations"]
    return {
        rule["id"]: [node["html"][:160] for node in rule["nodes"]]
        for rule in found
        if rule["impact"] in GRAVE
    }


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_before_and_after_a_race(browser, url, theme):
    with closing(browser.new_page()) as page:
        page.emulate_media(color_scheme=theme)
        page.goto(url)
        status_says(page, "Ready")
        open_settings(page)
        assert violations(page) == {}
        run(page)
        wait_for_end(page)
        page.locator(".plot .bars").first.wait_for()
        page.get_by_label("show rejected drafts").check()
        assert violations(page) == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1366])
def test_axe_finds_nothing_serious_in_any_tab(browser, url, theme, width):
    with closing(browser.new_page()) as page:
        page.set_viewport_size({"width": width, "height": 768})
        page.emulate_media(color_scheme=theme)
        page.goto(url)
        status_says(page, "Ready")
        to_the_end(page)
        for tab in TABS:
            page.get_by_role("tab", name=tab.title, exact=True).click()
            page.locator(f"#{tab.name}").wait_for()
            assert violations(page) == {}, tab.title


def focused(page):
    return page.evaluate(
        """() => {
            const at = document.activeElement;
            const name = at.getAttribute("aria-label") || at.labels?.[0]?.textContent;
            return (name || at.textContent || at.className).trim();
        }"""
    )


def tab_to(page, name):
    for _ in range(60):
        page.keyboard.press("Tab")
        if name in focused(page):
            return
    raise AssertionError(f"Tab does not reach {name}")


def test_a_race_is_set_run_and_read_by_keyboard_alone(browser, url):
    with opened(browser, url) as page:
        tab_to(page, "Instruction")
        page.keyboard.press("Control+a")
        page.keyboard.type("Say it")
        tab_to(page, "Settings")
        page.keyboard.press("Enter")
        page.get_by_label("Seed", exact=True).wait_for()
        tab_to(page, "Draft length K")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        tab_to(page, "Random seed")
        page.keyboard.press("Enter")
        tab_to(page, "KV precision")
        tab_to(page, "Copy as Python")
        page.keyboard.press("Control+Enter")
        wait_for_end(page)
        tab_to(page, "Speculative answer")
        page.keyboard.press("ArrowRight")
        expect(page.locator(".token-card")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator(".token-card")).to_be_hidden()
        stops = page.locator(".pane .text").all()
        assert [stop.get_attribute("tabindex") for stop in stops] == ["0", "0"]
        inside = ".pane .text :is(a, button, input, [tabindex='0'])"  # one stop is enough
        expect(page.locator(inside)).to_have_count(0)
