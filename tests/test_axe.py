"""Everybody: what axe-core finds, and a race with nothing but a keyboard."""

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.served import fit, opened, wait_for_end
from ui.link import STOPS

THEMES = ("light", "dark")


def violations(page, part=None):
    """What axe says that is grave of a part of the page, by rule, with the elements."""
    found = Axe().run(page, part, {"resultTypes": ["violations"]}).response["violations"]
    return {
        rule["id"]: [node["html"][:160] for node in rule["nodes"]]
        for rule in found
        if rule["impact"] in ("serious", "critical")
    }


def test_axe_finds_nothing_serious_at_any_stop_of_the_tour(browser, url):
    """And after a race: `tests/test_screens.py`."""
    with opened(browser, url) as page:
        page.emulate_media(reduced_motion="reduce")  # a theme fades in
        assert violations(page) == {}
        page.locator("#tour-open").click()
        for _ in range(len(STOPS) + 1):
            for theme in THEMES:
                fit(page, 1366, 768, theme)
                assert violations(page, "[data-testid=tour]") == {}
            page.locator("[data-testid=tour] [data-do=next]").click()


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
