"""The form and its link: what it asks for, and what a link may put into it."""

from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import expect

from pipeline.errors import UserError
from pipeline.models.pairs import PAIRS
from pipeline.request import FORM_FIELDS, Request
from tests.fake_dolly import PAIR, FakeDolly, loader_of
from tests.served import (
    LANES,
    PLAIN,
    drafters,
    fit,
    open_settings,
    opened,
    run,
    served,
    status_says,
    wait_for_end,
)
from ui import link
from ui.page import Page

LIMITS = {"temperature": (0, 2), "top_p": (0.01, 1), "max_new_tokens": (1, 512)}
HOSTILE = (
    "<img src=x onerror='window.hacked=1'>${window.hacked=2}{{window.hacked}}\u202e \U0001f415"
)


@pytest.fixture(scope="module")
def page(browser, server):
    """A page with open settings, which the tests below use one after the other."""
    with opened(browser, server[1]) as page:
        open_settings(page)
        yield page


def choose(page, label, option):
    page.get_by_label(label, exact=True).click()
    page.get_by_role("option", name=option).first.click()


@pytest.mark.parametrize(
    "example", [example for pair in PAIRS.values() for example in pair.examples]
)
def test_an_example_asks_for_what_the_form_can_hold(example):
    form = {"instruction": example.instruction, "context": example.context, **example.settings}
    told = {name: str(value) for name, value in form.items()}
    assert link.read(told, LIMITS) == (form, "")


@given(st.dictionaries(st.sampled_from([*link.BLANK, "__theme", "utm"]), st.text()))
def test_whatever_a_link_says_the_form_can_hold_what_is_taken_from_it(query):
    asked, line = link.read(query, LIMITS)
    assert asked.keys() <= link.BLANK.keys() & query.keys()
    assert bool(line) == (asked.keys() != link.BLANK.keys() & query.keys())
    assert "\n" not in line
    for name, (low, high) in LIMITS.items():
        assert low <= asked.get(name, high) <= high


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_new_tokens", "513"),
        ("temperature", "nan"),
        ("top_p", "1e999"),
        ("seed", "9" * 5000),
        ("draft_length", "many"),
        ("mode", HOSTILE),
        ("kv_precision", "None"),
        ("drafter", "block"),  # which the pair lacks
        ("instruction", "a\0b"),
    ],
)
def test_what_is_not_possible_is_left_out_and_said(name, value):
    asked, line = link.read({name: value, "top_k": "7"}, LIMITS, PAIR.drafters)
    assert asked == {"top_k": 7}
    assert line.startswith(f"link: “{name}=")


def test_a_link_refills_the_form_and_runs_nothing(page, browser, url, dolly):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    started = len(dolly.started)
    page.get_by_label("Instruction").fill(HOSTILE)
    page.get_by_label("number input for Temperature").fill("0.7")
    page.get_by_label("Seed", exact=True).fill("5")
    choose(page, "Draft length K", "6")
    choose(page, "Schedule", "one after the other")
    choose(page, "KV precision", "u8")
    choose(page, "Verification", "As a block")
    page.get_by_role("button", name="Share").click()
    page.wait_for_function(  # in the page, since it is said for two seconds
        "document.getElementById('share').textContent === 'Copied'"
    )
    copied = page.evaluate("navigator.clipboard.readText()")
    assert dict(parse_qsl(urlsplit(copied).query)) == {
        "instruction": HOSTILE,
        "temperature": "0.7",
        "seed": "5",
        "draft_length": "6",
        "mode": "sequential",
        "kv_precision": "u8",
        "verification": "block",
    }
    with opened(browser, copied) as other:
        other.wait_for_function(
            "text => document.querySelector('#instruction textarea').value === text", arg=HOSTILE
        )
        open_settings(other)
        expect(other.get_by_label("number input for Temperature")).to_have_value("0.7")
        expect(other.get_by_label("Seed", exact=True)).to_have_value("5")
        expect(other.get_by_label("Draft length K", exact=True)).to_have_value("6")
        assert len(dolly.started) == started
        assert other.evaluate("window.hacked") is None
        run(other)
        wait_for_end(other)
    made = dolly.last_trace()
    assert (made.request["seed"], made.request["kv_precision"]) == (5, "u8")


def test_a_hostile_link_is_one_line_and_the_form_keeps_its_own(browser, url):
    bad = urlencode({name: HOSTILE for name in link.BLANK if name != "context"})
    with opened(browser, f"{url}?{bad}") as page:
        page.get_by_test_id("notice").filter(has_text="link: “").wait_for()
        expect(page.get_by_label("Instruction")).to_have_value(HOSTILE)
        assert page.evaluate("window.hacked") is None
        run(page)
        wait_for_end(page)


def test_an_example_fills_the_form_and_runs_it(page, dolly):
    choose(page, "Draft length K", "6")
    page.get_by_label("Instruction").fill("Something else")
    started = len(dolly.started)
    page.get_by_role("button", name="An example").click()
    page.locator(".panes[data-source=live]").wait_for()
    wait_for_end(page)
    assert len(dolly.started) == started + 1
    example, *_ = dolly.pair.examples
    assert dolly.last_trace().request == Request(example.instruction, example.context).recorded


def test_no_label_of_a_menu_runs_under_its_caret(page):
    for width in (360, 768, 1280):
        fit(page, width, 900)
        overlaps = page.eval_on_selector_all(
            "#settings .wrap-inner",
            """menus => menus.map((menu) => {
                const [label, caret] = ["input", "svg"].map((part) => menu.querySelector(part));
                const { right } = label.getBoundingClientRect();
                const padding = parseFloat(getComputedStyle(label).paddingRight);
                return [label.ariaLabel, right - padding - caret.getBoundingClientRect().left];
            })""",
        )
        assert len(overlaps) == 7
        assert [name for name, pixels in overlaps if pixels > 0] == []


def test_a_page_that_allows_less_than_the_default_has_a_form_that_it_takes():
    controls = Page(loader_of(FakeDolly(PLAIN)), max_new_tokens=8)._controls
    _, *form = (field.value for field in controls.inputs)
    assert controls.request(*form).max_new_tokens == 8
    form[FORM_FIELDS.index("max_new_tokens")] = 9
    with pytest.raises(UserError, match="new tokens: 9 — choose a whole number from 1 to 8"):
        controls.request(*form)


def test_the_dice_draws_a_seed(page):
    drawn = {page.get_by_label("Seed", exact=True).input_value()}
    for _ in range(3):
        page.get_by_role("button", name="Random seed").click()
        page.wait_for_function(
            "drawn => !drawn.includes(document.querySelector('#seed input').value)", arg=[*drawn]
        )
        drawn.add(page.get_by_label("Seed", exact=True).input_value())
    assert all(0 <= int(seed) < 2**32 for seed in drawn)


def test_one_after_the_other_ends_a_lane_before_it_begins_the_next(page, dolly):
    choose(page, "Schedule", "one after the other")
    dolly.pause = 0.01
    run(page)
    page.locator("[data-testid=pane-speculative] .text .tok").first.wait_for()
    dolly.pause = 0.0
    ended = "[data-testid=pane-autoregressive] .text .tok"
    expect(page.locator(ended)).to_have_count(100)
    wait_for_end(page)


def test_one_lane_alone_runs_and_the_page_says_so(page, dolly):
    for lane in LANES:
        choose(page, "Schedule", f"{lane} only")
        page.get_by_role("button", name="Run", exact=True).wait_for()
        run(page)
        page.locator(f"[data-testid=pane-{lane}][data-end=length]").wait_for()
        page.locator("#header header:not([data-state=running])").wait_for()
        expect(page.get_by_test_id("notice")).to_have_text("")
        assert list(dolly.last_trace().lanes) == [lane]


WITH_BLOCK = replace(PAIR, block=Path("a folder"))


def test_a_block_draft_is_offered_for_a_pair_that_has_one():
    assert PAIR.drafters == ("model", "lookup", "hybrid", "memory")
    assert WITH_BLOCK.drafters == ("model", "block", "lookup", "hybrid", "memory")


def test_another_pair_is_one_click_away_and_brings_its_drafters(browser):
    """Who opened the page before keeps the example of the first pair."""
    dolly = FakeDolly(PLAIN)
    with (
        served(dolly, WITH_BLOCK) as url,
        opened(browser, url) as other,
        opened(browser, f"{url}?drafter=block") as page,
    ):
        open_settings(page)
        page.get_by_label("Pair", exact=True).click()
        page.get_by_role("option").filter(has_text="Dolly v2 3B").click()
        page.get_by_role("button", name="Load", exact=True).click()
        page.get_by_role("button", name="Ideas for a gift").wait_for()  # an example of that pair
        assert drafters(page) == ["Draft model", "Lookup", "Hybrid", "Memory"]
        other.get_by_role("button", name="An example").click()
        status_says(other, "identical")
        assert dolly.last_trace().request["instruction"] == "Say something"
        run(page)
        wait_for_end(page)
        assert dolly.last_trace().request["drafter"] == "model"
